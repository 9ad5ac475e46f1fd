//! `GET /health` on this machine only (spec: harness-api, section 16).

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use serde_json::json;

use crate::cli::fault::{Fault, exit};

/// Whether core is connected; shared with the health port.
pub(super) type Connected = Arc<AtomicBool>;

/// The bound health port.
pub(super) struct Health {
    socket: TcpListener,
    /// The port that it has.
    pub(super) port: u16,
}

impl Health {
    /// Binds; port 0 picks a free one.
    pub(super) fn bind(port: u16) -> Result<Self, Fault> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AddrInUse => Fault::new(
                exit::PORT_IN_USE,
                "port-in-use",
                format!("127.0.0.1:{port} is in use, and the health port needs it"),
            )
            .fix("choose another with --health-port (NYLORUN_HARNESS_HEALTH_PORT)"),
            _ => Fault::new(exit::FAILED, "listen", format!("cannot listen on 127.0.0.1:{port}: {error}")),
        };
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = socket.local_addr().map_err(failed)?.port();
        Ok(Self { socket, port })
    }

    /// Serves until the handle stops it.
    pub(super) fn serve(self, connected: Connected) -> Result<ServerHandle, Fault> {
        let server = HttpServer::new(move || {
            let connected = Arc::clone(&connected);
            App::new().route("/health", web::get().to(move || answer(Arc::clone(&connected))))
        })
        .workers(1)
        .disable_signals()
        .listen(self.socket)
        .map_err(|error| Fault::new(exit::FAILED, "listen", error.to_string()))?
        .run();
        let handle = server.handle();
        actix::spawn(async move {
            if let Err(error) = server.await {
                tracing::error!(%error, "the health port failed");
            }
        });
        Ok(handle)
    }
}

async fn answer(connected: Connected) -> HttpResponse {
    let connected = connected.load(Ordering::Relaxed);
    HttpResponse::Ok()
        .insert_header(("cache-control", "no-store"))
        .json(json!({ "status": "ok", "service": "nylorun-harness", "connected": connected }))
}
