//! How the layers of settings go over each other, and what is malformed.

use std::collections::HashMap;

use super::layers::mask;
use super::*;
use crate::sandbox::choice::Kind;

fn load(
    flags: &[(&'static str, &str)],
    env: &[(&str, &str)],
    file: Option<&str>,
) -> Result<Settings, SettingsError> {
    let dir = tempfile::tempdir().expect("a directory");
    let flags: Vec<_> = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let mut vars: HashMap<String, String> =
        env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    vars.entry("NYLORUN_HOME".to_owned()).or_insert_with(|| dir.path().display().to_string());
    if let Some(text) = file {
        std::fs::write(dir.path().join("nylorun.toml"), text).expect("the file");
    }
    Settings::load(&flags, None, &|name| vars.get(name).cloned())
}

fn origin(settings: &Settings, key: &str) -> String {
    settings.effective().iter().find(|row| row.key == key).expect(key).origin.clone()
}

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let file = "tenant-name = \"file\"\nlog = \"json\"\nidle-after-ms = 7\n";
    let env = [("NYLORUN_TENANT_NAME", "env"), ("NYLORUN_LOG_FORMAT", "text")];
    let settings = load(&[("tenant-name", "flag")], &env, Some(file)).expect("settings");
    assert_eq!(settings.tenant_name, "flag");
    assert_eq!(settings.log, Some(LogFormat::Text));
    assert_eq!(settings.idle_after_ms, Some(7));
    assert_eq!(settings.listen.to_string(), "127.0.0.1:8787");
    assert_eq!(origin(&settings, "tenant-name"), "flag --tenant-name");
    assert_eq!(origin(&settings, "log"), "environment NYLORUN_LOG_FORMAT");
    assert!(origin(&settings, "idle-after-ms").ends_with("nylorun.toml"));
    assert_eq!(origin(&settings, "listen"), "default");
}

#[test]
fn a_blank_variable_is_not_set() {
    let settings =
        load(&[], &[("NYLORUN_TENANT_NAME", "  "), ("NYLORUN_LISTEN_PORT", "")], None).expect("ok");
    assert_eq!(settings.tenant_name, "default");
    assert_eq!(settings.listen.port, 8787);
}

#[test]
fn the_hold_of_an_action_may_be_none_and_ages_are_durations() {
    let env = [("NYLORUN_ACTION_HOLD_MS", "0"), ("NYLORUN_DELIVERY_MAX_AGE", "90m")];
    let settings = load(&[], &env, None).expect("ok");
    assert_eq!((settings.action_hold_ms, settings.delivery_max_age_ms), (Some(0), Some(90 * 60_000)));
}

#[test]
fn a_malformed_value_names_its_place() {
    for (name, value) in [
        ("NYLORUN_LISTEN_PORT", "http"),
        ("NYLORUN_LOG_FORMAT", "xml"),
        ("NYLORUN_LOG", "nylorun=loud"),
        ("NYLORUN_TENANT_ID", "me"),
        ("NYLORUN_PUBLIC_URL", "nowhere"),
        ("NYLORUN_ALLOWED_HOSTS", "name-without-port"),
        ("NYLORUN_OWNER_LEASE_MS", "0"),
        ("NYLORUN_ACTION_HOLD_MS", "-1"),
        ("NYLORUN_DELIVERY_MAX_AGE", "soon"),
        ("NYLORUN_MODEL_ON_CRASH", "maybe"),
        ("NYLORUN_DATABASE_URL", "/a/path"),
    ] {
        let error = load(&[], &[(name, value)], None).expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    }
    let error = load(&[], &[], Some("listen = \"x\"")).expect_err("file").to_string();
    assert!(error.contains("`listen` in") && error.contains("nylorun.toml"), "{error}");
}

#[test]
fn an_unknown_key_of_the_file_is_named() {
    let error = load(&[], &[], Some("listne = \"x\"")).expect_err("unknown").to_string();
    assert!(error.contains("`listne`") && error.contains("operator-listen"), "{error}");
}

#[test]
fn any_of_the_container_variables_listens_beyond_the_machine() {
    let settings = load(&[], &[("NYLORUN_LISTEN_PORT", "9000")], None).expect("ok");
    assert_eq!(settings.listen.to_string(), "0.0.0.0:9000");
    let settings = load(&[], &[("NYLORUN_LISTEN_HOST", "127.0.0.1")], None).expect("ok");
    assert_eq!(settings.listen.to_string(), "127.0.0.1:4000");
    let settings = load(&[], &[("NYLORUN_ALLOWED_HOSTS", "API.example:443")], None).expect("ok");
    assert_eq!(settings.listen.to_string(), "0.0.0.0:4000");
    assert_eq!(settings.allowed_hosts, ["api.example:443"]);
}

#[test]
fn a_postgres_url_is_refused_without_its_password() {
    let error = load(&[], &[("NYLORUN_DATABASE_URL", "postgres://u:secret@h/db")], None)
        .expect_err("postgres")
        .to_string();
    assert!(error.contains("SQLite only") && !error.contains("secret"), "{error}");
}

#[test]
fn the_operator_listener_needs_a_port_of_its_own() {
    let error = load(&[("operator-listen", "127.0.0.1:8787")], &[], None).expect_err("same").to_string();
    assert!(error.contains("--operator-listen"), "{error}");
    let settings = load(&[], &[("NYLORUN_ADMIN_LISTEN_HOST", "127.0.0.1")], None).expect("off");
    assert_eq!(settings.operator_listen, None);
}

#[test]
fn the_harness_listener_has_a_port_of_its_own_and_listens_beyond_the_machine_in_a_container_only() {
    let settings = load(&[], &[], None).expect("defaults");
    assert_eq!(settings.harness, HarnessMode::InProcess);
    assert_eq!(settings.harness_listen.to_string(), "127.0.0.1:4200");
    let hosts = [("NYLORUN_HARNESS", "remote"), ("NYLORUN_HARNESS_ALLOWED_HOSTS", "core:4200")];
    let settings = load(&[], &hosts, None).expect("ok");
    assert_eq!(
        (settings.harness, settings.harness_listen.to_string().as_str()),
        (HarnessMode::Remote, "0.0.0.0:4200")
    );
    let settings = load(&[], &[("NYLORUN_HARNESS_LISTEN_HOST", "127.0.0.2")], None).expect("ok");
    assert_eq!(settings.harness_listen.to_string(), "127.0.0.2:4200");
    let settings = load(&[], &[("NYLORUN_HARNESS_LISTEN_PORT", "5000")], None).expect("ok");
    assert_eq!(settings.harness_listen.to_string(), "0.0.0.0:5000");

    // The ports of others are taken only when it listens.
    for (flag, value) in [("listen", "127.0.0.1:4200"), ("operator-listen", "127.0.0.1:4200")] {
        load(&[(flag, value)], &[], None).expect("in process");
        let error = load(&[(flag, value), ("harness", "remote")], &[], None).expect_err(flag).to_string();
        assert!(error.contains("harness-listen") && error.contains("differ"), "{error}");
    }
}

#[test]
fn harness_tokens_are_read_from_every_layer_and_never_shown() {
    let (one, two) = ("a".repeat(64), "b".repeat(64));
    let file = format!("harness-token = [\"{one}\", \"{two}\"]\n");
    for settings in [
        load(&[], &[], Some(&file)).expect("file"),
        load(&[], &[("NYLORUN_HARNESS_TOKEN", &format!("{one}, {two}"))], None).expect("variable"),
    ] {
        let tokens = settings.harness_tokens.as_ref().expect("tokens");
        assert!(tokens.accept(&one) && tokens.accept(&two));
        let row = settings.effective().iter().find(|row| row.key == "harness-token").expect("a row");
        assert_eq!(row.value, "****");
        assert!(!format!("{settings:?}").contains(&one));
    }
    let error = load(&[], &[("NYLORUN_HARNESS_TOKEN", "5ecret")], None).expect_err("short").to_string();
    assert!(error.contains("NYLORUN_HARNESS_TOKEN") && !error.contains("5ecret"), "{error}");
}

#[test]
fn passwords_of_urls_are_masked_when_shown() {
    assert_eq!(mask("https://u:p@h/x"), "https://****@h/x");
    assert_eq!(mask("https://h/x"), "https://h/x");
}

#[test]
fn the_readme_has_every_setting_as_it_is() {
    let readme = include_str!("../../../README.md");
    for setting in SETTINGS {
        let env: Vec<String> = setting.env.iter().map(|name| format!("`{name}`")).collect();
        let default =
            if setting.default.is_empty() { String::new() } else { format!("`{}`", setting.default) };
        let row = format!("| `{}` | {} | {default} | {} |", setting.key, env.join(", "), setting.what);
        assert!(readme.contains(&row), "README.md lacks this row:\n{row}");
    }
}

#[test]
fn where_deliveries_may_go_is_open_by_default_and_closed_setting_by_setting() {
    let policy = |env: &[(&str, &str)]| load(&[], env, None).map(|settings| settings.outbound);
    let open = policy(&[]).expect("ok");
    assert!(open.http && open.private && !open.docker_host);
    let closed = [("NYLORUN_ENDPOINT_HTTP", "refuse"), ("NYLORUN_ENDPOINT_PRIVATE", "refuse")];
    let closed = policy(&closed).expect("ok");
    assert!(!closed.http && !closed.private);
    assert!(policy(&[("NYLORUN_ENDPOINT_LOOPBACK", "docker-host")]).expect("ok").docker_host);
    for (name, value) in [
        ("NYLORUN_ENDPOINT_HTTP", "yes"),
        ("NYLORUN_ENDPOINT_PRIVATE", "deny"),
        ("NYLORUN_ENDPOINT_LOOPBACK", "host"),
    ] {
        let error = policy(&[(name, value)]).expect_err("refused").to_string();
        assert!(error.starts_with(&format!("{name} is malformed")), "{error}");
    }
    // Each alone makes sense; together nothing could be delivered there.
    let both = [("NYLORUN_ENDPOINT_LOOPBACK", "docker-host"), ("NYLORUN_ENDPOINT_PRIVATE", "refuse")];
    let error = policy(&both).expect_err("refused").to_string();
    assert!(error.contains("NYLORUN_ENDPOINT_LOOPBACK") && error.contains("endpoint-private"), "{error}");
}

#[test]
fn a_backend_of_sandboxes_that_is_unknown_refuses_to_start_and_names_those_there_are() {
    assert_eq!(load(&[], &[], None).expect("ok").sandbox, Preference::Auto);
    let named = load(&[], &[("NYLORUN_SANDBOX_BACKEND", "Process")], None).expect("ok").sandbox;
    assert_eq!(named, Preference::Only(Kind::Process));
    let error = load(&[("sandbox", "vm")], &[], None).expect_err("refused").to_string();
    assert!(error.starts_with("--sandbox is malformed") && error.contains("namespaces"), "{error}");
}
