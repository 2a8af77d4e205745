// Echo servers and clients by Java's ways to use sockets.
//
//	java Echo.java serve blocking|nio PORT [MILLISECONDS]
//	java Echo.java talk  blocking|nio PORT ROUNDS
//
// What is sent comes back. The server starts a program each so many milliseconds.
import java.io.*;
import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;

public class Echo {
    static final int[] SIZES = {1, 60, 120, 481, 5000, 70000, 300000};
    static final int CONNECTIONS = 4;

    static void serveBlocking(int port) throws IOException {
        ServerSocket l = new ServerSocket(port, 64, InetAddress.getByName("127.0.0.1"));
        for (;;) {
            Socket s = l.accept();
            new Thread(() -> {
                try (s) {
                    s.getInputStream().transferTo(s.getOutputStream());
                } catch (IOException e) {
                    e.printStackTrace();
                }
            }).start();
        }
    }

    // One selector; what cannot be written waits for room, and nothing is read meanwhile.
    static void serveNIO(int port) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel l = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", port), 64);
        l.configureBlocking(false);
        l.register(selector, SelectionKey.OP_ACCEPT);
        for (;;) {
            selector.select();
            for (SelectionKey k : selector.selectedKeys()) {
                if (k.isAcceptable()) {
                    SocketChannel c = l.accept();
                    c.configureBlocking(false);
                    c.register(selector, SelectionKey.OP_READ, ByteBuffer.allocateDirect(1 << 16));
                    continue;
                }
                SocketChannel c = (SocketChannel) k.channel();
                ByteBuffer b = (ByteBuffer) k.attachment();
                if (k.isReadable()) {
                    if (c.read(b) < 0) {
                        c.close();
                        continue;
                    }
                    b.flip();
                }
                c.write(b);
                if (b.hasRemaining()) {
                    k.interestOps(SelectionKey.OP_WRITE);
                } else {
                    b.clear();
                    k.interestOps(SelectionKey.OP_READ);
                }
            }
            selector.selectedKeys().clear();
        }
    }

    static void startPrograms(int pause) {
        Thread t = new Thread(() -> {
            try {
                for (;; Thread.sleep(pause))
                    if (new ProcessBuilder("true").start().waitFor() != 0) throw new IOException("true is false");
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        });
        t.setDaemon(true);
        t.start();
    }

    interface Wire extends Closeable {
        void put(byte[] b) throws IOException;
        void get(byte[] b) throws IOException;
    }

    static Wire connect(boolean nio, int port) throws IOException {
        if (!nio) {
            Socket s = new Socket("127.0.0.1", port);
            DataInputStream in = new DataInputStream(s.getInputStream());
            return new Wire() {
                public void put(byte[] b) throws IOException { s.getOutputStream().write(b); }
                public void get(byte[] b) throws IOException { in.readFully(b); }
                public void close() throws IOException { s.close(); }
            };
        }
        SocketChannel c = SocketChannel.open(new InetSocketAddress("127.0.0.1", port));
        return new Wire() {
            public void put(byte[] b) throws IOException {
                for (ByteBuffer x = ByteBuffer.wrap(b); x.hasRemaining();) c.write(x);
            }
            public void get(byte[] b) throws IOException {
                for (ByteBuffer x = ByteBuffer.wrap(b); x.hasRemaining();)
                    if (c.read(x) < 0) throw new EOFException();
            }
            public void close() throws IOException { c.close(); }
        };
    }

    static String talk(boolean nio, int port, int rounds, int seed) throws Exception {
        Random random = new Random(seed);
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        ExecutorService writer = Executors.newSingleThreadExecutor();
        try (Wire w = connect(nio, port)) {
            for (int i = 0; i < rounds; i++) {
                byte[] out = new byte[SIZES[random.nextInt(SIZES.length)]], in = new byte[out.length];
                random.nextBytes(out);
                Future<?> sent = writer.submit(() -> { w.put(out); return null; });
                w.get(in);
                sent.get();
                if (!Arrays.equals(in, out)) throw new Exception("round " + i + " differs");
                digest.update(in);
            }
        } finally {
            writer.shutdown();
        }
        return HexFormat.of().formatHex(digest.digest());
    }

    public static void main(String[] args) throws Exception {
        boolean nio = args[1].equals("nio");
        int port = Integer.parseInt(args[2]);
        if (args[0].equals("serve") && args.length > 3) startPrograms(Integer.parseInt(args[3]));
        if (args[0].equals("serve") && nio) serveNIO(port);
        if (args[0].equals("serve")) serveBlocking(port);
        List<Callable<String>> all = new ArrayList<>();
        for (int i = 0; i < CONNECTIONS; i++) {
            int seed = i;
            all.add(() -> talk(nio, port, Integer.parseInt(args[3]), seed));
        }
        ExecutorService pool = Executors.newFixedThreadPool(CONNECTIONS);
        for (Future<String> f : pool.invokeAll(all)) System.out.println(f.get());
        pool.shutdown();
    }
}
