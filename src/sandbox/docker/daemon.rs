//! The Docker daemon on this machine, over its Unix socket.

use std::io::ErrorKind;
use std::time::Duration;

use bollard::errors::Error;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::time::timeout;

/// Where the daemon listens unless it is said.
const SOCKET: &str = "/var/run/docker.sock";
/// How long it may take to say that it is there.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// How long any other request may take, seconds. A container may have to be unpacked first.
const REQUEST_SECONDS: u64 = 60;

/// A daemon that answers.
pub(super) struct Daemon {
    pub(super) api: Docker,
    /// Its version, and that of its API.
    pub(super) version: String,
}

/// What a daemon's refusal says, without the status around it.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::IOError { .. } => {
            format!("the Docker daemon is not there any more ({error})")
        }
        other => other.to_string(),
    }
}

/// The status of a refusal.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

impl Daemon {
    /// Connects to the daemon that `DOCKER_HOST` names, or to the usual one.
    pub(super) async fn connect(host: Option<&str>) -> Result<Self, String> {
        let host = host.filter(|host| !host.is_empty()).unwrap_or(SOCKET);
        let path = host.strip_prefix("unix://").unwrap_or(host);
        if !path.starts_with('/') {
            return Err(format!(
                "DOCKER_HOST is {host:?}, and only a daemon on this machine is used: unix:///PATH"
            ));
        }
        if let Err(error) = tokio::net::UnixStream::connect(path).await
            && error.kind() == ErrorKind::PermissionDenied
        {
            return Err(format!(
                "this user may not ask the Docker daemon at {path}: it takes root or the group of that socket"
            ));
        }
        let api = Docker::connect_with_unix(path, REQUEST_SECONDS, API_DEFAULT_VERSION);
        let api = api.map_err(|_| format!("there is no Docker daemon at {path}"))?;
        let hello = async {
            // The daemon may be older than this program.
            let api = api.negotiate_version().await?;
            let version = api.version().await?;
            Ok::<_, Error>((api, version))
        };
        let said = timeout(HELLO_WAIT, hello).await;
        let said = said.map_err(|_| format!("the Docker daemon at {path} does not answer"))?;
        let (api, version) =
            said.map_err(|error| format!("the Docker daemon at {path} does not answer: {error}"))?;
        let version = format!(
            "{}, API {}",
            version.version.unwrap_or_default(),
            version.api_version.unwrap_or_default()
        );
        Ok(Self { api, version })
    }

    /// Whether it limits what containers take together: memory, processes, CPU time. In words if not.
    pub(super) async fn limits(&self) -> Result<(), String> {
        let info = self.api.info().await.map_err(|error| words(&error))?;
        let of =
            [("memory", info.memory_limit), ("processes", info.pids_limit), ("CPUs", info.cpu_cfs_quota)];
        let lacks: Vec<&str> =
            of.iter().filter(|(_, has)| *has == Some(false)).map(|(what, _)| *what).collect();
        if lacks.is_empty() {
            return Ok(());
        }
        Err(format!("the Docker daemon has no control groups for {}", lacks.join(", ")))
    }

    /// The volumes that an image has declared; in words why it cannot be used. None is fetched.
    pub(super) async fn image(&self, image: &str) -> Result<Vec<String>, String> {
        match self.api.inspect_image(image).await {
            Ok(found) => Ok(found.config.and_then(|config| config.volumes).unwrap_or_default()),
            Err(error) if status(&error) == Some(404) => Err(absent(image)),
            Err(error) => Err(words(&error)),
        }
    }
}

/// What is said of an image that is not there.
pub(super) fn absent(image: &str) -> String {
    format!("the image {image} is not there: `docker pull {image}`")
}
