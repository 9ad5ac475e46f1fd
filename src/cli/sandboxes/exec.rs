//! Commands in the sandbox of a session, over the tool route (spec: http-api, section 9; sandbox, section 15), and a
//! shell that is made of such commands.
//!
//! The shell keeps no process in the sandbox. Each line first reads what the line before has left of directory and
//! variables, in a file of the sandbox's `/tmp`, and leaves it there anew, however it ends.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use nylorun_actors::model::json::Json;
use reqwest::Method;
use serde_json::json;

use super::super::args::sandboxes::{Exec, Shell};
use super::super::client::{Client, segment};
use super::super::fault::{Fault, exit};
use super::super::out::{Out, plain};
use super::super::terminal::Lines;

/// Seconds that a command has when nothing is said.
const TIMEOUT: u32 = 120;

/// Beyond a command's own time: it may wait for others in the same sandbox, which is opened first.
const PATIENCE: Duration = Duration::from_secs(60);

/// `sandboxes exec`.
///
/// # Errors
/// What a person reads: the command was not run.
pub async fn exec(client: &Client, out: &Out, ask: &Exec) -> Result<u8, Fault> {
    let session = session_of(client, &ask.target).await?;
    let command = match ask.command.as_slice() {
        [line] => line.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    };
    let output = bash(client, &session, &command, ask.timeout.unwrap_or(TIMEOUT)).await?;
    if out.is_json() {
        out.json(&output)?;
    } else {
        show(out, &output)?;
    }
    Ok(code(&output))
}

/// `sandboxes shell`.
///
/// # Errors
/// What a person reads: there is no such sandbox, or nobody to ask.
pub async fn shell(client: &Client, out: &Out, ask: &Shell) -> Result<u8, Fault> {
    let session = session_of(client, &ask.target).await?;
    let timeout = ask.timeout.unwrap_or(TIMEOUT);
    let typed = std::io::stdin().is_terminal() && !out.is_json();
    if typed {
        out.note(&format!(
            "Each line is a command of its own in the sandbox of session {session}: no input, no terminal, no jobs.\n\
             Directory and variables stay. `exit` or Ctrl-D ends it; Ctrl-C ends a command."
        ));
    }
    let state = format!("/tmp/.nylorun-shell-{:016x}", rand::random::<u64>());
    let (mut lines, mut last) = (Lines::of_stdin(), exit::OK);
    loop {
        if typed {
            let mut stderr = std::io::stderr().lock();
            // Without its prompt the shell works all the same.
            let _ = write!(stderr, "{} $ ", ask.target).and_then(|()| stderr.flush());
        }
        let line = tokio::select! {
            line = lines.next() => line,
            _ = tokio::signal::ctrl_c() => return Ok(exit::INTERRUPTED),
        };
        let Some(line) = line else { break };
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        if let Some(said) = line.strip_prefix("exit").filter(|rest| rest.is_empty() || rest.starts_with(' '))
        {
            last = said.trim().parse().unwrap_or(last);
            break;
        }
        let command = kept(line, &state);
        let running = bash(client, &session, &command, timeout);
        let ran = tokio::select! {
            ran = running => ran,
            // The request is dropped, and the Runtime ends the command.
            _ = tokio::signal::ctrl_c() => {
                out.note("");
                last = exit::INTERRUPTED;
                continue;
            }
        };
        match ran {
            Ok(output) => {
                last = code(&output);
                if out.is_json() { out.json(&output)? } else { show(out, &output)? }
            }
            // The Runtime is there and refuses: a turn has the sandbox, say. The next line may be let in.
            Err(fault) if fault.exit == exit::FAILED => {
                last = fault.exit;
                // Its exit code is the shell's own, later.
                let _ = fault.report(out);
            }
            Err(fault) => return Err(fault),
        }
    }
    // A few bytes in the sandbox's `/tmp`, which goes anyway when the sandbox stops.
    let _ = bash(client, &session, &format!("rm -f {state}"), TIMEOUT).await;
    Ok(last)
}

/// A line that begins where the one before has ended, and leaves a word for the next. `set -a`: whatever is assigned is
/// exported, and so it is in the list of what is kept.
fn kept(line: &str, state: &str) -> String {
    let line = quoted(line);
    format!(
        "if [ -f {state} ]; then . {state}; cd -- \"$NYLORUN_PWD\"; fi\n\
         trap 'nylorun_code=$?; trap - EXIT; NYLORUN_PWD=$PWD; export NYLORUN_PWD; export -p >{state}; exit $nylorun_code' EXIT\n\
         set -a\n\
         eval {line}"
    )
}

/// The session whose sandbox is meant.
async fn session_of(client: &Client, target: &str) -> Result<String, Fault> {
    let view = match client.call(Method::GET, &format!("/v1/sessions/{}", segment(target)), None).await {
        Ok(view) => view,
        Err(error) if error.status() == Some(404) => return lender(client, target, error).await,
        Err(error) => return Err(client.explain(error).await),
    };
    if view["sandbox"].is_null() {
        return Err(Fault::new(
            exit::FAILED,
            "request_rejected",
            format!("the session {target} was opened without a sandbox"),
        )
        .fix("open one with `nylorun run AGENT MESSAGE --sandbox`"));
    }
    Ok(target.to_owned())
}

/// A session that is attached to a sandbox and has no turn just now.
async fn lender(
    client: &Client,
    sandbox: &str,
    no_session: super::super::client::CallError,
) -> Result<String, Fault> {
    let Ok(view) = client.call(Method::GET, &format!("/v1/sandboxes/{}", segment(sandbox)), None).await
    else {
        let fault = client.explain(no_session).await;
        // The opaque 404 is about the key.
        return Err(if fault.code == "not_found" || fault.exit != exit::FAILED {
            fault
        } else {
            Fault::new(exit::FAILED, &fault.code, format!("there is no session and no sandbox {sandbox}"))
                .fix("`nylorun sessions list` and `nylorun sandboxes list` show them")
        });
    };
    let sessions = view["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let free = sessions.iter().find(|session| session["activeTurnId"].is_null()).or(sessions.first());
    match free.and_then(|session| session["id"].as_str()) {
        Some(session) => Ok(session.to_owned()),
        None => Err(Fault::new(
            exit::FAILED,
            "sandbox_unavailable",
            format!("no session is attached to the sandbox {sandbox}"),
        )
        .fix(format!("open one with `nylorun run AGENT MESSAGE --sandbox={sandbox}`"))),
    }
}

/// Runs a command; what it came to.
async fn bash(client: &Client, session: &str, command: &str, timeout: u32) -> Result<Json, Fault> {
    let path = format!("/v1/sessions/{}/sandbox/bash", segment(session));
    let body = json!({ "command": command, "timeout": timeout });
    let within = Duration::from_secs(u64::from(timeout)) + PATIENCE;
    let outcome = match client.call_within(Method::POST, &path, Some(&body), within).await {
        Ok(outcome) => outcome,
        Err(error) => return Err(client.explain(error).await),
    };
    if outcome["kind"] == "completed" {
        return Ok(outcome["output"].clone());
    }
    Err(Fault::new(exit::FAILED, &plain(&outcome["code"]), plain(&outcome["message"])))
}

fn show(out: &Out, output: &Json) -> Result<(), Fault> {
    out.text(output["stdout"].as_str().unwrap_or_default())?;
    let errors = output["stderr"].as_str().unwrap_or_default();
    // Nobody may read it; the exit code says enough.
    let _ = std::io::stderr().lock().write_all(errors.as_bytes());
    Ok(())
}

fn code(output: &Json) -> u8 {
    output["exitCode"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILED)
}

/// A word as a shell takes it, to the letter.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn sh(program: &str, text: &str) -> (String, i32) {
        let output = Command::new(program).arg("-c").arg(text).env_clear().output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
    }

    #[test]
    fn words_reach_a_program_to_the_letter() {
        for word in ["plain", "two words", "it's", "$HOME `id` \"x\" \\ *", "", "new\nline", "-n"] {
            assert_eq!(sh("/bin/sh", &format!("printf %s {}", quoted(word))).0, word, "{word:?}");
        }
    }

    #[test]
    fn directory_and_variables_stay_from_line_to_line_however_a_line_ends() {
        let dir = tempfile::tempdir().unwrap();
        for shell in ["/bin/bash", "/bin/sh"] {
            let state = dir.path().join(shell.replace('/', "-"));
            let run = |line: &str| sh(shell, &kept(line, state.to_str().unwrap()));
            assert_eq!(run("cd /usr; name='a  b'; export other=\"it's\""), (String::new(), 0), "{shell}");
            assert_eq!(run("printf '%s|%s|%s' \"$PWD\" \"$name\" \"$other\""), ("/usr|a  b|it's".into(), 0));
            assert_eq!(run("cd lib; exit 7").1, 7, "{shell}: an exit keeps its code");
            assert_eq!(run("pwd; false"), ("/usr/lib\n".into(), 1), "{shell}");
            assert_eq!(run("name=new true; echo \"$name\"; echo 'quo\"te'"), ("a  b\nquo\"te\n".into(), 0));
            // A line that is no command leaves all as it was.
            assert_ne!(run("if then").1, 0);
            assert_eq!(run("echo \"$name\"").0, "a  b\n", "{shell}");
        }
    }
}
