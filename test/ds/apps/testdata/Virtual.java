// Echo servers and clients with a virtual thread for each connection.
//
//	java Virtual serve PORT
//	java Virtual talk  PORT CONNECTIONS ROUNDS
//
// Sockets of virtual threads do not block. Who would wait is parked, and its
// descriptor becomes a one-shot member of an epoll set, one set for reading and
// another for writing, in which other threads of Java's wait. What is sent comes back.
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;

public class Virtual {
    static final int[] SIZES = {1, 60, 120, 481, 5000, 70000, 300000};

    static void serve(int port) throws IOException {
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
                ServerSocket l = new ServerSocket(port, 512, InetAddress.getByName("127.0.0.1"))) {
            for (;;) {
                Socket s = l.accept();
                threads.submit(() -> {
                    try (s) {
                        s.getInputStream().transferTo(s.getOutputStream());
                    } catch (Throwable e) {
                        e.printStackTrace();
                    }
                });
            }
        }
    }

    interface Wire extends Closeable {
        void put(byte[] b) throws IOException;
        int get(byte[] b, int from) throws IOException; // -1 at the end
        void end() throws IOException;
    }

    // A timeout of 0 is none. Others make a member leave the set and come back.
    static Wire socket(int port, int timeout) throws IOException {
        Socket s = new Socket("127.0.0.1", port);
        s.setSoTimeout(timeout);
        return new Wire() {
            public void put(byte[] b) throws IOException { s.getOutputStream().write(b); }
            public int get(byte[] b, int from) throws IOException {
                for (;;) {
                    try {
                        return s.getInputStream().read(b, from, b.length - from);
                    } catch (SocketTimeoutException e) {
                        // The bytes are still to come.
                    }
                }
            }
            public void end() throws IOException { s.shutdownOutput(); }
            public void close() throws IOException { s.close(); }
        };
    }

    static Wire channel(int port) throws IOException {
        SocketChannel c = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
        return new Wire() {
            public void put(byte[] b) throws IOException {
                for (ByteBuffer x = ByteBuffer.wrap(b); x.hasRemaining();) c.write(x);
            }
            public int get(byte[] b, int from) throws IOException { return c.read(ByteBuffer.wrap(b, from, b.length - from)); }
            public void end() throws IOException { c.shutdownOutput(); }
            public void close() throws IOException { c.close(); }
        };
    }

    static String talk(int port, int rounds, int seed, ExecutorService threads) throws Exception {
        Random random = new Random(seed);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        String last;
        try (Wire w = seed % 3 == 0 ? channel(port) : socket(port, seed % 3 == 1 ? 0 : 3)) {
            for (int i = 0; i < rounds; i++) {
                byte[] out = new byte[SIZES[random.nextInt(SIZES.length)]], in = new byte[out.length];
                random.nextBytes(out);
                Future<?> sent = threads.submit(() -> { w.put(out); return null; });
                for (int n, got = 0; got < in.length; got += n)
                    if ((n = w.get(in, got)) < 0) throw new EOFException();
                sent.get();
                if (!Arrays.equals(in, out)) throw new Exception("round " + i + " differs");
                digest.update(in);
            }
            if (seed % 2 == 0) {
                w.end();
                last = "read " + w.get(new byte[1], 0);
            } else { // a thread that waits is told that another has closed
                Future<Integer> read = threads.submit(() -> w.get(new byte[1], 0));
                Thread.sleep(20); // until it waits, mostly: if it comes too late it is told the same
                w.close();
                try {
                    last = "read " + read.get();
                } catch (ExecutionException e) {
                    last = e.getCause() instanceof SocketException || e.getCause() instanceof ClosedChannelException ? "closed" : e.toString();
                }
            }
        }
        return seed + " " + HexFormat.of().formatHex(digest.digest()) + " " + last;
    }

    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[1]);
        if (args[0].equals("serve")) serve(port);
        try (ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            List<Future<String>> all = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(args[2]); i++) {
                int seed = i;
                all.add(threads.submit(() -> talk(port, Integer.parseInt(args[3]), seed, threads)));
            }
            for (Future<String> f : all) System.out.println(f.get());
        }
    }
}
