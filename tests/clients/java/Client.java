// Calls a podresources socket with grpc-java over netty: Client SOCKET FORM NAMESPACE POD. One JSON line per call; see ../README.md.

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.concurrent.TimeUnit;

final class Client {
  private static final String UNKNOWN = "no-such-pod";
  private static final int DEADLINE_S = 10;
  private static final int REPLY_MAX = 16 << 20;

  /** Messages as bytes, both ways. */
  private static final MethodDescriptor.Marshaller<byte[]> AS_IS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] message) {
          return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream message) {
          try {
            return message.readAllBytes();
          } catch (IOException e) {
            throw new UncheckedIOException(e);
          }
        }
      };

  private record Call(String method, String path, byte[] request) {}

  /** GetPodResourcesRequest: pod_name = 1, pod_namespace = 2; both shorter than 128 bytes. */
  private static byte[] getRequest(String namespace, String pod) {
    byte[] first = pod.getBytes(StandardCharsets.UTF_8);
    byte[] second = namespace.getBytes(StandardCharsets.UTF_8);
    byte[] request = new byte[4 + first.length + second.length];
    request[0] = 1 << 3 | 2;
    request[1] = (byte) first.length;
    System.arraycopy(first, 0, request, 2, first.length);
    request[2 + first.length] = 2 << 3 | 2;
    request[3 + first.length] = (byte) second.length;
    System.arraycopy(second, 0, request, 4 + first.length, second.length);
    return request;
  }

  private static void make(ManagedChannel channel, String form, Call call) {
    var method =
        MethodDescriptor.newBuilder(AS_IS, AS_IS)
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName(call.path())
            .build();
    var options = CallOptions.DEFAULT.withDeadlineAfter(DEADLINE_S, TimeUnit.SECONDS);
    int code = 0;
    String text = "";
    String reply = "";
    try {
      reply = HexFormat.of().formatHex(ClientCalls.blockingUnaryCall(channel, method, options, call.request()));
    } catch (StatusRuntimeException e) {
      Status status = e.getStatus();
      code = status.getCode().value();
      text = status.getDescription() == null ? "" : status.getDescription();
    }
    String version = NettyChannelBuilder.class.getPackage().getImplementationVersion();
    System.out.printf(
        "{\"client\": \"grpc-java %s\", \"form\": \"%s\", \"method\": \"%s\", \"code\": %d, \"text\": \"%s\", \"reply\": \"%s\"}%n",
        version, form, call.method(), code, text.replace("\\", "\\\\").replace("\"", "\\\""), reply);
  }

  public static void main(String[] args) {
    if (args.length != 4 || !args[1].equals("netty")) {
      System.err.println("usage: Client SOCKET netty NAMESPACE POD");
      System.exit(64);
    }
    String namespace = args[2];
    var loops = new EpollEventLoopGroup(1);
    ManagedChannel channel =
        NettyChannelBuilder.forAddress(new DomainSocketAddress(args[0]))
            .eventLoopGroup(loops)
            .channelType(EpollDomainSocketChannel.class)
            .maxInboundMessageSize(REPLY_MAX)
            .usePlaintext()
            .build();
    Call[] calls = {
      new Call("List", "v1.PodResourcesLister/List", new byte[0]),
      new Call("GetAllocatableResources", "v1.PodResourcesLister/GetAllocatableResources", new byte[0]),
      new Call("Get", "v1.PodResourcesLister/Get", getRequest(namespace, args[3])),
      new Call("Get unknown", "v1.PodResourcesLister/Get", getRequest(namespace, UNKNOWN)),
      new Call("v1alpha1 List", "v1alpha1.PodResourcesLister/List", new byte[0]),
    };
    for (Call call : calls) {
      make(channel, args[1], call);
    }
    channel.shutdownNow();
    loops.shutdownGracefully(0, 1, TimeUnit.SECONDS);
  }
}
