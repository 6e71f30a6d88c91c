package io.leasehold.client;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicInteger;

/** Passes the connections to a Unix socket on to a port. */
final class UnixRelay implements AutoCloseable {
  private final ServerSocketChannel server;
  private final int port;
  private final AtomicInteger connections = new AtomicInteger();

  private UnixRelay(ServerSocketChannel server, int port) {
    this.server = server;
    this.port = port;
  }

  static UnixRelay start(Path socket, int port) throws IOException {
    ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    server.bind(UnixDomainSocketAddress.of(socket));
    UnixRelay relay = new UnixRelay(server, port);
    background(relay::accept);
    return relay;
  }

  int connections() {
    return connections.get();
  }

  private interface Part {
    void run() throws IOException;
  }

  private static void background(Part part) {
    Thread thread =
        new Thread(
            () -> {
              try {
                part.run();
              } catch (IOException closed) {
                // that is how it ends
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  private void accept() throws IOException {
    while (true) {
      SocketChannel near = server.accept();
      SocketChannel far = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
      connections.incrementAndGet();
      background(() -> copy(near, far));
      background(() -> copy(far, near));
    }
  }

  private static void copy(SocketChannel from, SocketChannel to) throws IOException {
    try (from;
        to) {
      ByteBuffer buffer = ByteBuffer.allocate(16 * 1024);
      while (from.read(buffer) >= 0) {
        buffer.flip();
        while (buffer.hasRemaining()) {
          to.write(buffer);
        }
        buffer.clear();
      }
    }
  }

  @Override
  public void close() throws IOException {
    server.close();
  }
}
