//! Whether a request's client is still there, for work that must stop when nobody waits for it any more.
//!
//! A server learns that a client has gone when it reads the end of its stream. actix leaves a request alone then, since
//! a client may close its half and still read; so whoever wants to know looks at the socket itself, through a second
//! descriptor that is made when it is asked for. A client that closes its half counts as gone, as it does in Node.

use std::any::Any;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

use actix_web::HttpRequest;
use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use tokio::io::Interest;

/// The descriptor of a connection's socket, kept with the connection.
#[derive(Clone, Copy, Debug)]
struct Socket(RawFd);

/// Notes a connection's socket; for `HttpServer::on_connect`.
pub fn note_socket(connection: &dyn Any, data: &mut Extensions) {
    if let Some(stream) = connection.downcast_ref::<TcpStream>() {
        data.insert(Socket(stream.as_raw_fd()));
    }
}

/// The client of one request.
pub(super) struct ClientGone(Option<TcpStream>);

impl ClientGone {
    /// Watches the client of a request. Must be called by the request's handler, before its first answer byte. Where
    /// the socket was not noted, the client is taken to stay.
    #[allow(unsafe_code)]
    pub fn of(request: &HttpRequest) -> Self {
        let watched = request.conn_data::<Socket>().and_then(|socket| {
            // SAFETY: the handler of a request is run by its connection, which owns the socket, keeps it open for as
            // long as the handler lives and drops the handler before it closes it. The borrow ends in this statement.
            let socket = unsafe { BorrowedFd::borrow_raw(socket.0) };
            let copy = std::net::TcpStream::from(socket.try_clone_to_owned().ok()?);
            TcpStream::from_std(copy).ok()
        });
        Self(watched)
    }

    /// Waits until the client has gone; for ever while it stays.
    pub async fn wait(&self) {
        if let Some(socket) = &self.0 {
            while let Ok(ready) = socket.ready(Interest::READABLE).await {
                if ready.is_read_closed() {
                    return;
                }
                // Bytes of the next request, which are the connection's to read: wait for something new.
                let _ = socket.try_io(Interest::READABLE, || Err::<(), _>(ErrorKind::WouldBlock.into()));
            }
        }
        std::future::pending().await
    }
}
