//! Scripts, recognised by their text. Nothing is interpreted.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use parking_lot::Mutex;
use sha1_smol::Sha1;
use tracing::warn;

use self::known::{Action, KNOWN, Known};
use super::{
    arguments::{Refusal, Unit, compared, expiry, pair},
    command::{ScriptCall, ScriptName},
    reply::Reply,
    verb::{Call, Pair, Verb},
};

mod known;
mod normal;

/// How many texts are remembered. Each library has a few.
const LOADED_MAX: usize = 1000;

/// How many unknown scripts are logged.
const LOGGED_MAX: usize = 100;

/// The scripts that clients have sent.
#[derive(Default)]
pub(super) struct Scripts {
    /// By the SHA-1 of their texts, in lower-case hexadecimal digits.
    loaded: Mutex<HashMap<String, &'static Known>>,
    /// The unknown normal forms that were logged, each once.
    logged: Mutex<HashSet<String>>,
}

impl Scripts {
    /// The call that a script stands for, or the reply that refuses it.
    pub(super) fn read(&self, call: &ScriptCall) -> Result<Call, Reply> {
        let known = match &call.script {
            ScriptName::Text(text) => self.recognise(text).map(|(known, _)| known)?,
            ScriptName::Digest(digest) => {
                let found = self.loaded.lock().get(&lower(digest)).copied();
                found.ok_or_else(|| {
                    Reply::Error("NOSCRIPT No matching script. Please use EVAL.".into())
                })?
            }
        };
        known.call(&call.keys, &call.arguments).map_err(Reply::failure)
    }

    /// The reply to `SCRIPT LOAD`.
    pub(super) fn load(&self, text: &Bytes) -> Reply {
        self.recognise(text).map_or_else(|reply| reply, |(_, digest)| Reply::text(digest))
    }

    /// The reply to `SCRIPT EXISTS`.
    pub(super) fn exist(&self, digests: &[Bytes]) -> Reply {
        let loaded = self.loaded.lock();
        let is_loaded = |digest: &Bytes| i64::from(loaded.contains_key(&lower(digest)));
        Reply::Array(digests.iter().map(is_loaded).map(Reply::Integer).collect())
    }

    /// Recognises a text and remembers its SHA-1.
    fn recognise(&self, text: &Bytes) -> Result<(&'static Known, String), Reply> {
        let digest = Sha1::from(text).digest().to_string();
        if let Some(known) = self.loaded.lock().get(&digest) {
            return Ok((known, digest));
        }
        let normal = normal::digest(&String::from_utf8_lossy(text));
        let Some(known) = KNOWN.iter().find(|known| known.digest == normal) else {
            let mut logged = self.logged.lock();
            if logged.len() < LOGGED_MAX && logged.insert(normal.clone()) {
                warn!(
                    script = normal,
                    "a client of the Redis front sent a script that is not known"
                );
            }
            drop(logged);
            return Err(Reply::failure(Refusal::not_served(format!(
                "the script {normal} is not known. If it is from a lock library, report this \
                 number with the library's name and version in an issue of leasehold"
            ))));
        };
        let mut loaded = self.loaded.lock();
        if loaded.len() >= LOADED_MAX {
            loaded.clear();
        }
        loaded.insert(digest.clone(), known);
        Ok((known, digest))
    }
}

impl Known {
    /// What a call with these keys and arguments does.
    fn call(&self, keys: &[Bytes], arguments: &[Bytes]) -> Result<Call, Refusal> {
        let Some((key, _)) = keys.split_first().filter(|_| keys.len() == self.keys) else {
            return Err(Refusal::not_served(format!(
                "a script with {} keys; take locks one by one",
                keys.len()
            )));
        };
        let argument = |place: usize| {
            let missing = || Refusal::not_served(format!("this script without ARGV[{place}]"));
            arguments.get(place - 1).ok_or_else(missing)
        };
        let value = argument(1)?;
        let ttl = |place, unit| expiry("eval", argument(place)?, unit);
        // To take the lock, the value must be a valid lock ID. Other actions only compare it.
        let compare = |verb: &dyn Fn(Pair) -> Verb| {
            Ok(compared(key, value)?.map_or_else(Verb::Mismatch, verb))
        };
        let verb = match self.action {
            Action::Acquire(place, unit) => Verb::Acquire(pair(key, value)?, ttl(place, unit)?),
            Action::RenewOrAcquire(place, unit) => {
                Verb::RenewOrAcquire(pair(key, value)?, ttl(place, unit)?)
            }
            Action::Renew(place, unit) => {
                let ttl = ttl(place, unit)?;
                compare(&|pair| Verb::Renew(pair, ttl))?
            }
            Action::RenewOrProlong(place, how) => {
                let ttl = ttl(place, Unit::Milliseconds)?;
                if argument(how)?.as_ref() == b"0" {
                    compare(&|pair| Verb::Prolong(pair, ttl))?
                } else {
                    compare(&|pair| Verb::Renew(pair, ttl))?
                }
            }
            Action::Remaining => compare(&Verb::RemainingOf)?,
            Action::Release => compare(&Verb::Release)?,
        };
        Ok(Call { verb, replies: self.replies.clone() })
    }
}

fn lower(digest: &Bytes) -> String {
    String::from_utf8_lossy(digest).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The script in the documentation of Redis.
    const RELEASE: &str = "if redis.call(\"get\",KEYS[1]) == ARGV[1]\nthen\n    return \
                           redis.call(\"del\",KEYS[1])\nelse\n    return 0\nend";

    fn call(script: ScriptName, keys: &[&'static str]) -> ScriptCall {
        let keys = keys.iter().map(|key| Bytes::from(*key)).collect();
        ScriptCall { script, keys, arguments: vec![Bytes::from("v")] }
    }

    fn text(script: &'static str) -> ScriptName {
        ScriptName::Text(Bytes::from(script))
    }

    fn refusal(reply: Result<Call, Reply>) -> String {
        match reply {
            Err(Reply::Error(error)) => error.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_script_is_recognised_by_its_text_and_then_by_its_digest() {
        let scripts = Scripts::default();
        let digest = Sha1::from(RELEASE).digest().to_string();
        let by_digest = || call(ScriptName::Digest(digest.to_uppercase().into()), &["k"]);
        assert!(refusal(scripts.read(&by_digest())).starts_with("NOSCRIPT "));
        let read = scripts.read(&call(text(RELEASE), &["k"])).unwrap();
        assert!(matches!(read.verb, Verb::Release(_)));
        assert_eq!(scripts.read(&by_digest()), Ok(read));
        let known = scripts.exist(&[digest.into(), Bytes::from("0")]);
        assert_eq!(known, Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]));
    }

    #[test]
    fn a_loaded_script_answers_the_digest_of_its_own_text() {
        let digest = Sha1::from(RELEASE).digest().to_string();
        assert_eq!(Scripts::default().load(&Bytes::from(RELEASE)), Reply::text(digest));
    }

    #[test]
    fn an_unknown_script_is_refused_with_the_number_to_report() {
        let message = refusal(Scripts::default().read(&call(text("return 1"), &["k"])));
        assert!(
            message.contains(&normal::digest("return 1")) && message.contains("report"),
            "{message}"
        );
    }

    #[test]
    fn a_script_has_one_key_and_all_its_arguments() {
        let scripts = Scripts::default();
        for keys in [&[] as &[&str], &["a", "b"]] {
            let message = refusal(scripts.read(&call(text(RELEASE), keys)));
            assert!(message.contains(&format!("{} keys", keys.len())), "{message}");
        }
        let bare = ScriptCall { arguments: Vec::new(), ..call(text(RELEASE), &["k"]) };
        assert!(refusal(scripts.read(&bare)).contains("ARGV[1]"));
    }

    #[test]
    fn the_first_of_two_keys_is_that_of_the_lock() {
        let known = KNOWN.iter().find(|known| known.keys == 2).unwrap();
        let bytes = |texts: &[&'static str]| {
            texts.iter().map(|text| Bytes::from(*text)).collect::<Vec<_>>()
        };
        let read = known.call(&bytes(&["k", "signal"]), &bytes(&["v", "1000"])).unwrap();
        let pair = Pair { key: "k".parse().unwrap(), value: "v".parse().unwrap() };
        assert_eq!((read.verb, read.replies.done), (Verb::Release(pair), Reply::Integer(0)));
        assert!(known.call(&bytes(&["k"]), &bytes(&["v", "1000"])).is_err());
    }

    #[test]
    fn a_value_that_cannot_be_a_holder_s_is_compared_and_found_different() {
        let arguments = vec![Bytes::new()];
        let empty = ScriptCall { arguments, ..call(text(RELEASE), &["k"]) };
        let read = Scripts::default().read(&empty).unwrap();
        assert!(matches!(read.verb, Verb::Mismatch(_)));
    }

    #[test]
    fn every_digest_is_in_the_table_once() {
        let digests: BTreeSet<_> = KNOWN.iter().map(|known| known.digest).collect();
        assert_eq!(digests.len(), KNOWN.len());
        assert!(digests.iter().all(|digest| digest.len() == 40));
    }
}
