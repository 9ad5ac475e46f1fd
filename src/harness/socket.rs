//! The WebSocket of a remote harness: the upgrade, the pump between socket and channel, silence, and the pause before
//! the next attempt (spec: harness-api, sections 2.1, 4 and 16).

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use nylorun_actors::limits::{HARNESS_FRAME_BYTES, HARNESS_SILENCE_MS};
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Message, WebSocketConfig};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use super::channel::Channel;
use super::outbox::Outgoing;
use crate::harness_api::ORDERED;

/// How long connecting may take, TLS and upgrade included.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// How long core may take to answer a close.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// Shortest and longest pause before the next attempt.
pub(crate) const RETRY_FIRST_MS: u64 = 500;
pub(crate) const RETRY_LONGEST_MS: u64 = 10_000;

/// A connection that lasted longer than this makes the pauses short again.
pub(crate) const LASTED: Duration = Duration::from_secs(10);

/// Read buffer: frames are mostly small, and a large one takes its own room.
const READ_BUFFER: usize = 4 * 1024;

/// Longest reason of a close, bytes.
const REASON_BYTES: usize = 120;

/// An open socket.
pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A connection to core that stands.
#[derive(Debug)]
pub struct Opened {
    /// Its socket.
    pub socket: Socket,
    /// Whether core lets nothing of a run overtake a value of it. A core that does not say so may.
    pub ordered: bool,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Core answered the upgrade with another status.
    #[error("core refused the connection with {status}: {}", repair(*status))]
    Refused {
        /// The HTTP status.
        status: u16,
    },
    /// Core did not answer in time.
    #[error("core did not answer within {} s", HANDSHAKE_WAIT.as_secs())]
    Silent,
    /// No connection, or no WebSocket on it.
    #[error("cannot connect to core: {0}")]
    Failed(String),
}

/// What to do about a refusal (spec: harness-api, section 2.1).
fn repair(status: u16) -> &'static str {
    match status {
        401 => {
            "the token is not core's: set NYLORUN_HARNESS_TOKEN (or the token file) to what core has; the file is \
             read again for each attempt"
        }
        404 => "there is no harness listener at this path: NYLORUN_HARNESS_URL must name core's harness port",
        421 => {
            "core does not serve this name: add its `name:port` to NYLORUN_HARNESS_ALLOWED_HOSTS of core, or use \
             another name in NYLORUN_HARNESS_URL"
        }
        426 => {
            "core speaks another version of the Harness API, or the URL names another port: bring both to the same \
             version"
        }
        503 => "core is starting or stopping, or has no room; nothing to do if it passes",
        _ => {
            "something between this harness and core answered instead of it; check NYLORUN_HARNESS_URL and proxies"
        }
    }
}

/// Connects and upgrades.
///
/// # Errors
/// [`ConnectError`]; all of them may pass.
pub async fn connect(url: &str, token: &SecretString) -> Result<Opened, ConnectError> {
    let failed = |error: WsError| ConnectError::Failed(error.to_string());
    let mut request = url.into_client_request().map_err(failed)?;
    let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
        .map_err(|_| ConnectError::Failed("the token is no header value".to_owned()))?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, bearer);
    request.headers_mut().insert("nylorun-harness-api", HeaderValue::from_static("1"));
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .max_message_size(Some(HARNESS_FRAME_BYTES))
        .max_frame_size(Some(HARNESS_FRAME_BYTES));
    let connecting = connect_async_with_config(request, Some(config), true);
    match tokio::time::timeout(HANDSHAKE_WAIT, connecting).await {
        Ok(Ok((socket, answer))) => {
            let ordered = answer.headers().get(ORDERED).is_some_and(|value| value == "1");
            Ok(Opened { socket, ordered })
        }
        Ok(Err(WsError::Http(answer))) => Err(ConnectError::Refused { status: answer.status().as_u16() }),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(ConnectError::Silent),
    }
}

/// Carries frames until either end closes; the channel is closed when this ends.
pub async fn pump(socket: Socket, channel: &Channel) {
    let silence = Duration::from_millis(HARNESS_SILENCE_MS);
    let (mut sink, mut stream) = socket.split();
    let reading = async {
        loop {
            // Anything is a sign of life. The library answers pings by itself while it is read from.
            let message = match tokio::time::timeout(silence, stream.next()).await {
                Err(_) => return (1001, "core was silent for too long".to_owned()),
                Ok(None) => return (1006, "core is gone".to_owned()),
                Ok(Some(Err(error))) => return (1006, format!("the socket failed: {error}")),
                Ok(Some(Ok(message))) => message,
            };
            match message {
                Message::Text(text) => {
                    if let Err(fatal) = channel.take(text.as_str()) {
                        return (fatal.code, fatal.reason);
                    }
                }
                Message::Binary(_) => return (1007, "Harness API frames are JSON text".to_owned()),
                Message::Close(frame) => {
                    let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                    return (1000, format!("core closed: {reason}"));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    };
    let writing = async {
        loop {
            let text = match channel.next().await {
                Outgoing::Text(text) => text,
                Outgoing::Close { code, reason } => return (code, reason),
            };
            let sending = async {
                sink.feed(Message::text(text)).await?;
                // What was said in one breath goes out in one piece.
                while let Some(text) = channel.next_text() {
                    sink.feed(Message::text(text)).await?;
                }
                sink.flush().await
            };
            match tokio::time::timeout(silence, sending).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return (1006, format!("the socket failed: {error}")),
                Err(_) => return (1001, "core does not read".to_owned()),
            }
        }
    };
    let (code, reason) = tokio::select! {
        ended = reading => ended,
        ended = writing => ended,
    };
    channel.close(code, &reason);
    // 1006 says that there is nobody to say it to.
    if code != 1006 {
        let frame = CloseFrame { code: CloseCode::from(code), reason: cut(&reason).into() };
        let closing = async {
            let _ = sink.send(Message::Close(Some(frame))).await;
            while let Some(Ok(_)) = stream.next().await {}
        };
        let _ = tokio::time::timeout(CLOSE_WAIT, closing).await;
    }
}

fn cut(reason: &str) -> &str {
    let end = (0..=REASON_BYTES.min(reason.len())).rev().find(|at| reason.is_char_boundary(*at));
    &reason[..end.unwrap_or(0)]
}

/// The pause before attempt `n` since the last connection that lasted; `random` is in 0..1.
#[must_use]
pub fn pause(n: u32, random: f64) -> Duration {
    let most = RETRY_FIRST_MS.saturating_mul(1_u64 << n.min(32)).min(RETRY_LONGEST_MS);
    let jitter = random * (most - RETRY_FIRST_MS) as f64;
    Duration::from_millis(RETRY_FIRST_MS + jitter as u64)
}

#[cfg(test)]
mod tests;
