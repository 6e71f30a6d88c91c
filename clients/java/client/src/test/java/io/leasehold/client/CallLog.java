package io.leasehold.client;

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.ForwardingClientCall.SimpleForwardingClientCall;
import io.grpc.ForwardingClientCallListener.SimpleForwardingClientCallListener;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Records how the calls of a channel ended. */
final class CallLog implements ClientInterceptor {
  private final Map<String, String> outcomes = new ConcurrentHashMap<>();

  /** The code by which the last call of that method ended. */
  String outcome(String method) {
    return outcomes.get(method);
  }

  @Override
  public <Q, R> ClientCall<Q, R> interceptCall(
      MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
    return new SimpleForwardingClientCall<>(next.newCall(method, options)) {
      @Override
      public void start(Listener<R> listener, Metadata headers) {
        super.start(
            new SimpleForwardingClientCallListener<>(listener) {
              @Override
              public void onClose(Status status, Metadata trailers) {
                outcomes.put(method.getBareMethodName(), status.getCode().name());
                super.onClose(status, trailers);
              }
            },
            headers);
      }
    };
  }
}
