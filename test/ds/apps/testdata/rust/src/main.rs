//! An echo server and clients that check what comes back, on tokio and on smol:
//!
//!     echo serve tokio|smol PORT
//!     echo talk tokio|smol PORT CONNECTIONS
//!
//! Tokio waits in an edge-triggered epoll set, smol in a one-shot one; both work in two
//! threads.

use std::env;

const MESSAGES: usize = 300;

/// A message of its own for each connection and turn, of 1 to 60,000 bytes.
fn message(connection: usize, turn: usize) -> Vec<u8> {
    let mut x = (connection * MESSAGES + turn + 1) as u32;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    };
    let most = if next() % 8 == 0 { 60_000 } else { 600 };
    let n = 1 + next() as usize % most;
    (0..n).map(|_| next() as u8).collect()
}

/// The body of a server and of a client is the same for both; their types are not.
macro_rules! bodies {
    ($serve:ident, $talk:ident, $net:path, $io:path, $spawn:path, $detach:expr, $task:ident => $joined:expr) => {
        async fn $serve(port: u16) -> std::io::Result<()> {
            use $io::*;
            use $net::*;
            let listener = TcpListener::bind(("127.0.0.1", port)).await?;
            loop {
                let (mut stream, _) = listener.accept().await?;
                $detach($spawn(async move {
                    let mut buffer = vec![0; 16384];
                    loop {
                        match stream.read(&mut buffer).await {
                            Ok(n) if n > 0 && stream.write_all(&buffer[..n]).await.is_ok() => {}
                            _ => return,
                        }
                    }
                }));
            }
        }

        async fn $talk(port: u16, connections: usize) -> std::io::Result<()> {
            use $io::*;
            use $net::*;
            let mut tasks = Vec::new();
            for connection in 0..connections {
                tasks.push($spawn(async move {
                    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                    let mut bytes = 0;
                    for turn in 0..MESSAGES {
                        let sent = message(connection, turn);
                        let mut got = vec![0; sent.len()];
                        stream.write_all(&sent).await.unwrap();
                        stream.read_exact(&mut got).await.unwrap();
                        assert!(sent == got, "connection {connection}, turn {turn}");
                        bytes += sent.len();
                    }
                    bytes
                }));
            }
            let mut all = 0;
            for $task in tasks {
                all += $joined;
            }
            println!("{connections} connections, {all} bytes came back as they were");
            Ok(())
        }
    };
}

// What smol spawns ends when its task is dropped.
bodies!(serve_tokio, talk_tokio, tokio::net, tokio::io, tokio::spawn, drop, task => task.await.unwrap());
bodies!(serve_smol, talk_smol, smol::net, smol::io, smol::spawn, smol::Task::detach, task => task.await);

fn main() -> std::io::Result<()> {
    let args: Vec<String> = env::args().collect();
    let port = args[3].parse().unwrap();
    env::set_var("SMOL_THREADS", "2");
    let tokio = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build().unwrap();
    match (args[1].as_str(), args[2].as_str()) {
        ("serve", "tokio") => tokio().block_on(serve_tokio(port)),
        ("serve", "smol") => smol::block_on(serve_smol(port)),
        ("talk", "tokio") => tokio().block_on(talk_tokio(port, args[4].parse().unwrap())),
        ("talk", "smol") => smol::block_on(talk_smol(port, args[4].parse().unwrap())),
        _ => panic!("{args:?}"),
    }
}
