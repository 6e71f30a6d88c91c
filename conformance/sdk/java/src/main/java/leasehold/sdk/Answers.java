package leasehold.sdk;

import static leasehold.sdk.Report.expect;

import io.grpc.stub.StreamObserver;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** What a stream answers, to be taken one by one. */
final class Answers<T> implements StreamObserver<T> {
  private static final String END = "the end";

  private final BlockingQueue<Object> arrived = new LinkedBlockingQueue<>();

  @Override
  public void onNext(T answer) {
    arrived.add(answer);
  }

  @Override
  public void onError(Throwable error) {
    arrived.add("the error " + error);
  }

  @Override
  public void onCompleted() {
    arrived.add(END);
  }

  T take(Class<T> type) throws InterruptedException {
    Object next = next();
    if (!type.isInstance(next)) {
      throw new AssertionError("the stream went on with " + next);
    }
    return type.cast(next);
  }

  void expectEnd() throws InterruptedException {
    expect("what follows", next(), END);
  }

  private Object next() throws InterruptedException {
    Object next = arrived.poll(Store.CALL_TIMEOUT_MS, TimeUnit.MILLISECONDS);
    return next == null ? "nothing" : next;
  }
}
