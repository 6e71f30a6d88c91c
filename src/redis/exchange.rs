//! One request to one server, and how it ends.

use ::redis::{Cmd, RedisError, Value, pipe};
use tokio::time::{Instant, timeout_at};

use super::{
    errors::{is_from_server, is_not_loaded},
    library::Form,
    session::Session,
};

/// How one exchange ended.
pub(super) enum Exchange {
    Answered(Value),
    /// The server refused the request.
    Refused(RedisError),
    /// The connection was lost before the answer.
    Lost,
    /// No answer in time.
    Silent,
}

/// Sends a request. `is_asking` says that the node has the slot only for those who ask for it,
/// because another node moves the slot to it.
pub(super) async fn exchange(
    session: &Session,
    is_asking: bool,
    request: impl Fn(Form) -> Cmd,
    until: Instant,
) -> Exchange {
    let answer = async {
        match send(session, is_asking, &request(session.form())).await {
            // It was not executed, so it is safe to send it again.
            Err(error) if is_not_loaded(&error) => {
                session.owed.answer(session.load()).await?;
                send(session, is_asking, &request(session.form())).await
            }
            other => other,
        }
    };
    tokio::select! {
        biased;
        answer = timeout_at(until, answer) => match answer {
            Ok(Ok(_)) if session.is_outdated() => Exchange::Lost,
            Ok(Ok(value)) => Exchange::Answered(value),
            Ok(Err(error)) if is_from_server(&error) => Exchange::Refused(error),
            Ok(Err(_)) => Exchange::Lost,
            Err(_) => Exchange::Silent,
        },
        () = session.dead.cancelled() => Exchange::Lost,
    }
}

async fn send(session: &Session, is_asking: bool, request: &Cmd) -> Result<Value, RedisError> {
    let mut connection = session.connection();
    if !is_asking {
        return session.owed.answer(request.query_async(&mut connection)).await;
    }
    // It is about the next command of the connection, so both go in one write.
    let mut both = pipe();
    both.cmd("ASKING").add_command(request.clone());
    let answers = session.owed.answer(connection.send_packed_commands(&both, 0, 2)).await?;
    let mut last = Value::Nil;
    for answer in answers {
        last = answer.extract_error()?;
    }
    Ok(last)
}
