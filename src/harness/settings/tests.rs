//! Layers, refusals, and what is shown.

use secrecy::ExposeSecret;

use super::*;

const TOKEN: &str = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789ab";

fn load(flags: &[(&'static str, &str)], vars: &[(&str, &str)]) -> Result<HarnessSettings, Fault> {
    with_file(flags, vars, None)
}

fn with_file(
    flags: &[(&'static str, &str)],
    vars: &[(&str, &str)],
    file: Option<&str>,
) -> Result<HarnessSettings, Fault> {
    let flags: Vec<_> = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let vars = vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let dir = tempfile::tempdir().unwrap();
    let path = file.map(|text| {
        let path = dir.path().join("harness.toml");
        std::fs::write(&path, text).unwrap();
        path
    });
    HarnessSettings::load(&flags, path.as_deref(), &vars)
}

const BASE: [(&str, &str); 2] = [("NYLORUN_HARNESS_URL", "ws://core:4200"), ("NYLORUN_HARNESS_TOKEN", TOKEN)];

#[test]
fn flags_win_over_variables_over_the_file_over_defaults() {
    let file = "url = \"ws://file:1\"\nmax-runs = 3\nhealth-port = 5\n";
    let mut vars = BASE.to_vec();
    vars.push(("NYLORUN_HARNESS_MAX_RUNS", "4"));
    let settings = with_file(&[("url", "wss://flag/x")], &vars, Some(file)).unwrap();
    assert_eq!((settings.url.as_str(), settings.max_runs, settings.health_port), ("wss://flag/x", 4, 5));
    let origin = |key: &str| settings.effective().iter().find(|row| row.key == key).unwrap().origin.clone();
    assert_eq!(origin("url"), "flag --url");
    assert_eq!(origin("max-runs"), "environment NYLORUN_HARNESS_MAX_RUNS");
    assert!(origin("health-port").ends_with("harness.toml"));
    assert_eq!(origin("log"), "default");
}

#[test]
fn a_url_without_a_path_gets_the_apis() {
    let settings = load(&[], &BASE).unwrap();
    assert_eq!(settings.url, "ws://core:4200/nylorun/harness/v1");
    assert_eq!(settings.health_port, 4300);
    assert_eq!(settings.max_runs, MAX_RUNS);
}

#[test]
fn the_token_is_never_shown_nor_printed() {
    let settings = load(&[], &BASE).unwrap();
    assert!(!format!("{settings:?}").contains(TOKEN));
    let shown = settings.effective().iter().find(|row| row.key == "token").unwrap();
    assert_eq!(shown.value, "****");
    let Token::Given(token) = &settings.token else { panic!() };
    assert_eq!(token.expose_secret(), TOKEN);
}

#[test]
fn a_variable_of_cores_secrets_refuses_to_start_and_is_named() {
    for name in
        ["NYLORUN_DATABASE_URL", "NYLORUN_GATES_TOKEN", "NYLORUN_KEYS_URL", "NYLORUN_RESTATE_IDENTITY_KEY"]
    {
        let mut vars = BASE.to_vec();
        vars.push((name, "secret-value"));
        let fault = load(&[], &vars).unwrap_err();
        assert_eq!((fault.exit, fault.code.as_str()), (exit::USAGE, "setting-forbidden"));
        assert!(fault.message.contains(name) && !fault.message.contains("secret-value"));
        vars.pop();
        vars.push((name, " "));
        assert!(load(&[], &vars).is_ok(), "a blank one is not set");
    }
}

#[test]
fn a_missing_url_or_token_refuses_to_start() {
    for left in [&BASE[..1], &BASE[1..]] {
        assert_eq!(load(&[], left).unwrap_err().code, "setting-missing");
    }
}

#[test]
fn a_malformed_value_names_its_place() {
    for (name, value) in [
        ("NYLORUN_HARNESS_URL", "http://core"),
        ("NYLORUN_HARNESS_URL", "ws://me:hunter2@core"),
        ("NYLORUN_HARNESS_URL", "core:4200"),
        ("NYLORUN_HARNESS_TOKEN", "short"),
        ("NYLORUN_HARNESS_MAX_RUNS", "0"),
        ("NYLORUN_HARNESS_MAX_RUNS", "many"),
        ("NYLORUN_HARNESS_HEALTH_PORT", "70000"),
        ("NYLORUN_LOG_FORMAT", "xml"),
    ] {
        let vars: Vec<_> = BASE.iter().filter(|(n, _)| *n != name).copied().chain([(name, value)]).collect();
        let fault = load(&[], &vars).unwrap_err();
        assert!(fault.message.contains(name), "{}", fault.message);
        assert!(!fault.message.contains("hunter2"), "{}", fault.message);
    }
}

#[test]
fn a_token_file_is_read_again_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    let flags = [("token-file", path.to_str().unwrap())];
    assert!(load(&flags, &BASE[..1]).unwrap_err().message.contains("token file"));
    std::fs::write(&path, format!("{TOKEN}\n")).unwrap();
    let settings = load(&flags, &BASE[..1]).unwrap();
    assert_eq!(settings.token.read().unwrap().expose_secret(), TOKEN);
    let next = "f".repeat(64);
    std::fs::write(&path, &next).unwrap();
    assert_eq!(settings.token.read().unwrap().expose_secret(), next);
    std::fs::write(&path, "nonsense").unwrap();
    let why = settings.token.read().unwrap_err();
    assert!(why.contains("hex") && !why.contains("nonsense"), "{why}");
}
