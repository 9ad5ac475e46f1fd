//! What happens when no answer comes back.

use super::*;

#[tokio::test]
async fn a_refusal_and_a_filter_are_content_policy_failures() {
    let refused = anthropic_answer(&[vec![json!({"type": "text", "text": ""})]], "refusal");
    let server = ModelServer::start(vec![Reply::stream(&refused)]).await;
    let answer = ask(config("anthropic", "claude-sonnet-4-5", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::ContentPolicy);
    let server =
        ModelServer::start(vec![Reply::stream(&openai(&[json!({"content": "I"})], "content_filter"))]).await;
    let answer = ask(config("openai", "gpt-4.1", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::ContentPolicy);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn refusals_have_their_code_and_only_passing_ones_are_tried_again() {
    let error = |code: &str, message: &str| json!({"error": {"message": message, "type": "t", "code": code}});
    for (reply, code, retryable, requests) in [
        (Reply::error(401, error("invalid_api_key", "Incorrect API key")), FailureCode::Auth, false, 1),
        (Reply::error(403, json!({"error": "no"})), FailureCode::Auth, false, 1),
        (Reply::error(429, error("rate_limit_exceeded", "slow")), FailureCode::RateLimited, true, 3),
        (Reply::error(429, error("insufficient_quota", "pay")), FailureCode::RateLimited, false, 1),
        (
            Reply::error(400, error("context_length_exceeded", "too long")),
            FailureCode::ContextOverflow,
            false,
            1,
        ),
        (Reply::error(400, error("content_filter", "no")), FailureCode::ContentPolicy, false, 1),
        (Reply::error(422, error("odd", "no")), FailureCode::InvalidRequest, false, 1),
        (Reply::error(500, json!({})), FailureCode::Transient, true, 3),
        (Reply::error(503, json!({})), FailureCode::Overloaded, true, 3),
        (Reply::error(529, json!({})), FailureCode::Overloaded, true, 3),
    ] {
        let server = ModelServer::start(vec![reply]).await;
        let answer = ask(config("openai", "gpt-4.1", &server.url()), hi()).await;
        let failure = failure(&answer);
        assert_eq!((failure.code, failure.retryable), (code, retryable), "{answer}");
        assert_eq!(server.requests().len(), requests, "{answer}");
    }
}

#[tokio::test]
async fn a_later_attempt_may_succeed_after_the_wait_that_the_provider_asked_for() {
    let busy = Reply::error(429, json!({"error": {"message": "slow"}})).header("retry-after-ms", "300");
    let server =
        ModelServer::start(vec![busy, Reply::error(500, json!({})), Reply::stream(&says("at last"))]).await;
    let start = std::time::Instant::now();
    let answer = ask(config("openai", "gpt-4.1", &server.url()), hi()).await;
    assert_eq!(answer["output"][0]["text"], "at last");
    assert_eq!(server.requests().len(), 3);
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn a_wait_longer_than_the_cap_is_not_made_but_told() {
    let busy = Reply::error(429, json!({"error": {"message": "slow"}})).header("retry-after", "3600");
    let server = ModelServer::start(vec![busy]).await;
    let failure = failure(&ask(config("openai", "gpt-4.1", &server.url()), hi()).await);
    assert_eq!((failure.retry_after_ms, failure.retryable), (Some(3_600_000), true));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn broken_streams_are_transient_and_tried_again() {
    let half = frames(&[json!({"choices": [{"index": 0, "delta": {"content": "half"}}]})]);
    let overloaded = anthropic(&[
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ]);
    for (provider, model, reply, code) in [
        ("openai", "gpt-4.1", Reply::stream("data: {not json\n\n"), FailureCode::Transient),
        ("openai", "gpt-4.1", Reply::stream(&half), FailureCode::Transient),
        ("openai", "gpt-4.1", Reply::stream(&half).then(End::Cut), FailureCode::Transient),
        ("openai", "gpt-4.1", Reply::stream(""), FailureCode::Transient),
        (
            "anthropic",
            "claude-sonnet-4-5",
            Reply::stream("event: content_block_start\ndata: {\n\n"),
            FailureCode::Transient,
        ),
        ("anthropic", "claude-sonnet-4-5", Reply::stream(&overloaded), FailureCode::Overloaded),
    ] {
        let server = ModelServer::start(vec![reply.clone(), Reply::error(401, json!({}))]).await;
        // The second attempt is answered otherwise, which shows that it was made.
        let answer = ask(config(provider, model, &server.url()), hi()).await;
        assert_eq!(failure(&answer).code, FailureCode::Auth, "{answer}");
        let once = ProviderLimits { attempts: 1, ..quick() };
        let broken = ModelServer::start(vec![reply.clone()]).await;
        let answer = ask_with(once, config(provider, model, &broken.url()), hi()).await;
        assert_eq!((failure(&answer).code, failure(&answer).retryable), (code, true), "{answer}");
    }
}

#[tokio::test]
async fn silence_on_a_stream_is_a_retryable_timeout() {
    let half = frames(&[json!({"choices": [{"index": 0, "delta": {"content": "half"}}]})]);
    let server = ModelServer::start(vec![Reply::stream(&half).then(End::Hang)]).await;
    let limits = ProviderLimits { idle_timeout: Duration::from_millis(100), ..quick() };
    let answer = ask_with(limits, config("openai", "gpt-4.1", &server.url()), hi()).await;
    assert_eq!((failure(&answer).code, failure(&answer).retryable), (FailureCode::Timeout, true));
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_stream_that_never_ends_meets_the_bound_of_the_whole_call() {
    let beats = ": beat\n\n".repeat(20_000);
    let reply = Reply::stream(&beats).in_pieces(8).pause_between(Duration::from_millis(5)).then(End::Hang);
    let server = ModelServer::start(vec![reply]).await;
    let limits = ProviderLimits { request_timeout: Duration::from_millis(1500), ..quick() };
    let answer = ask_with(limits, config("openai", "gpt-4.1", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::Timeout);
    assert_eq!(server.requests().len(), 1, "the bound is for all attempts together");
}

#[tokio::test]
async fn an_answer_larger_than_its_bound_is_given_up() {
    let server = ModelServer::start(vec![Reply::stream(&says(&"x".repeat(5000)))]).await;
    let limits = ProviderLimits { answer_bytes: 4000, ..quick() };
    let answer = ask_with(limits, config("openai", "gpt-4.1", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::InvalidOutput);
}

#[tokio::test]
async fn a_provider_that_cannot_be_reached_is_transient() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let failure = failure(&ask(config("openai", "gpt-4.1", &url), hi()).await);
    assert_eq!((failure.code, failure.retryable), (FailureCode::Transient, true));
}

#[tokio::test]
async fn an_abort_ends_the_call_and_the_request() {
    let half = frames(&[json!({"choices": [{"index": 0, "delta": {"content": "half"}}]})]);
    let mut server = ModelServer::start(vec![Reply::stream(&half).then(End::Hang)]).await;
    let model = Providers::new(quick()).model(config("openai", "gpt-4.1", &server.url()));
    let Context { cx, abort, previews } = context();
    let watch = async {
        while previews.borrow().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        abort.send(Some(Abort { kind: AbortKind::Cancel, message: "stop".into() })).unwrap();
    };
    let (answer, ()) = tokio::join!(model.call(hi(), cx), watch);
    assert_eq!(answer.unwrap_err().kind, AbortKind::Cancel);
    tokio::time::timeout(Duration::from_secs(20), server.client_left())
        .await
        .expect("the connection stays open");
}

#[tokio::test]
async fn secrets_are_in_no_failure_message_and_nothing_of_an_answer_is_in_the_log() {
    let log = Arc::new(Mutex::new(Vec::<u8>::new()));
    let sink = Arc::clone(&log);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || Sink(Arc::clone(&sink)))
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    tracing::info!("the log works");
    let told = json!({"error": {"message": format!("key {KEY} and another-secret-value are not ours"), "code": "x"}});
    let in_stream = frames(&[json!({"error": {"message": format!("private words, {KEY}")}})]);
    for reply in [Reply::error(401, told.clone()), Reply::error(400, told), Reply::stream(&in_stream)] {
        let server = ModelServer::start(vec![reply]).await;
        let failure = failure(&ask(config("openai", "gpt-4.1", &server.url()), hi()).await);
        assert!(!failure.message.contains(KEY), "{}", failure.message);
        assert!(!failure.message.contains("another-secret-value"), "{}", failure.message);
        assert!(failure.message.contains("[redacted]"), "{}", failure.message);
    }
    let log = String::from_utf8_lossy(&log.lock().unwrap()).into_owned();
    assert!(log.contains("the log works"));
    for word in [KEY, "private words", "are not ours"] {
        assert!(!log.contains(word), "{word} is in the log:\n{log}");
    }
}

struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn keys_of_the_environment_are_never_used() {
    // Another process for the call: changing this one's environment while its threads run is not safe.
    if std::env::var_os("NYLORUN_TEST_INNER").is_none() {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "failures::keys_of_the_environment_are_never_used"])
            .env("NYLORUN_TEST_INNER", "1")
            .env("OPENAI_API_KEY", "ambient-openai-key")
            .env("ANTHROPIC_API_KEY", "ambient-anthropic-key")
            .status()
            .unwrap();
        assert!(status.success());
        return;
    }
    assert!(std::env::var("OPENAI_API_KEY").is_ok());
    for (provider, model) in [("openai", "gpt-4.1"), ("anthropic", "claude-sonnet-4-5")] {
        let server = ModelServer::start(vec![Reply::error(401, json!({}))]).await;
        ask(config(provider, model, &server.url()), hi()).await;
        let head = server.requests()[0].head.clone();
        assert!(head.contains(KEY) && !head.contains("ambient"), "{head}");
        let mut keyless = config(provider, model, &server.url());
        keyless.key = "".into();
        assert_eq!(failure(&ask(keyless, hi()).await).code, FailureCode::Auth);
        assert_eq!(server.requests().len(), 1, "without a key nothing is sent");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = ModelServer::start(vec![Reply::stream(&says("stolen"))]).await;
    let moved = Reply::error(307, json!({})).header("location", &format!("{}/messages", other.url()));
    let server = ModelServer::start(vec![moved]).await;
    let answer = ask(config("anthropic", "claude-sonnet-4-5", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::InvalidRequest);
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_provider_that_takes_more_than_its_window_has_overflowed() {
    let server = ModelServer::start(vec![Reply::stream(&says("dizzy"))]).await;
    let mut config = config("custom", "m", &server.url());
    config.settings.context_window = Some(19);
    assert_eq!(failure(&ask(config, hi()).await).code, FailureCode::ContextOverflow);
}
