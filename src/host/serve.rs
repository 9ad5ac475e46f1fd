//! `nylorun serve`: the home, the listeners, the Tenant behind them, and the end of it all
//! (spec: http-api, sections 1.1 and 1.4; durability, section 19; DESIGN.md, section 8).

use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::home::{Home, LinkFile};
use super::listen::{Bound, ListenError, bind};
use super::lock::HomeLock;
use super::open::{self, OpenFailure, Opener};
use super::settings::Settings;
use crate::api::{self, ApiState, HostFacts, HostNames, ListenerKind};
use crate::cli::client::Client;
use crate::cli::fault::{Fault, exit};
use crate::cli::out::Out;
use crate::cli::sample;
use crate::cli::target::{Source, Target};
use crate::telemetry::{self, LogFormat};

/// How long requests may take to finish once the Host stops (spec: http-api, section 1.4).
const REQUEST_GRACE_SECONDS: u64 = 10;
