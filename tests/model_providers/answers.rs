//! What is sent to a provider and what comes back.

use super::*;

#[tokio::test]
async fn an_openai_answer_has_text_usage_and_evidence_however_the_bytes_are_cut() {
    let text = "Grüße, 世界 🌍!";
    let body = openai(&[json!({"content": "Grüße, "}), json!({"content": "世界 🌍!"})], "stop");
    for size in [1, 3, 7, 100_000] {
        let server = ModelServer::start(vec![Reply::stream(&body).in_pieces(size)]).await;
        let answer = ask(config("openai", "gpt-4.1", &server.url()), hi()).await;
        assert_eq!(
            answer,
            json!({
                "output": [{"type": "text", "text": text}],
                "finishReason": "stop",
                "usage": {"inputTokens": 12, "outputTokens": 9, "totalTokens": 29, "cachedTokens": 8},
                "evidence": {"resolvedModel": "gpt-4.1-2025", "extras": {
                    "producer": {"provider": "openai", "api": "openai-completions", "model": "gpt-4.1"},
                    "contextWindow": 1_047_576, "maxOutputTokens": 32_768,
                }},
            }),
            "{size} bytes at a time"
        );
    }
}

#[tokio::test]
async fn an_openai_request_holds_the_conversation_the_tools_and_the_controls() {
    let server = ModelServer::start(vec![Reply::stream(&says("ok"))]).await;
    let mut call = call(vec![
        item::instructions("be brief"),
        item::user_text("hi"),
        item::assistant(
            vec![
                item::text_part("looking"),
                json!({"type": "tool-call", "id": "c1", "name": "look", "args": {"a": 1}}),
                json!({"type": "tool-call", "id": "c2", "name": "look", "args": {}}),
            ],
            None,
        ),
        item::tool_result("c1", "look", "completed", "\"found\""),
        item::tool_result("c2", "look", "failed", "{\"kind\":\"failed\"}"),
        item::context(vec![item::text_part("it rains")]),
    ]);
    call.tools =
        vec![Arc::new(json!({"name": "look", "description": "d", "inputSchema": {"type": "object"}}))];
    call.model = Some(ModelChoice {
        id: "openai/gpt-4o".into(),
        config: json!({"logit_bias": {}}).as_object().cloned(),
    });
    call.controls = Some(Controls { temperature: Some(0.5), max_output_tokens: Some(99) });
    ask(config("openai", "gpt-4.1", &server.url()), call).await;
    let request = &server.requests()[0];
    assert_eq!(request.path, "/v1/chat/completions");
    assert!(request.head.contains(&format!("Bearer {KEY}")), "{}", request.head);
    let body = &request.body;
    assert_eq!(body["model"], "gpt-4o");
    assert_eq!(body["stream"], true);
    assert_eq!((&body["temperature"], &body["max_tokens"]), (&json!(0.5), &json!(99)));
    assert_eq!(body["logit_bias"], json!({}));
    assert_eq!(body["tools"][0]["function"]["name"], "look");
    let roles: Vec<_> =
        body["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user"]);
    assert_eq!(body["messages"][2]["tool_calls"][0]["id"], "c1");
    assert_eq!(
        body["messages"][4],
        json!({"role": "tool", "tool_call_id": "c2", "content": "{\"kind\":\"failed\"}"})
    );
}

#[tokio::test]
async fn openai_tool_calls_come_together_from_fragments() {
    let delta = |index: u64, id: Option<&str>, name: Option<&str>, args: &str| {
        let mut call = json!({"index": index, "function": {"arguments": args}});
        if let Some(id) = id {
            call["id"] = json!(id);
            call["type"] = json!("function");
        }
        if let Some(name) = name {
            call["function"]["name"] = json!(name);
        }
        json!({"tool_calls": [call]})
    };
    let body = openai(
        &[
            json!({"content": "Let me see. "}),
            delta(0, Some("call_a"), Some("look"), ""),
            delta(0, None, None, "{\"q\":\"caf"),
            delta(0, None, None, "é\"}"),
            delta(1, Some("call_b"), Some("send"), "{"),
            delta(1, None, None, "}"),
        ],
        "tool_calls",
    );
    let server = ModelServer::start(vec![Reply::stream(&body).in_pieces(5)]).await;
    let model = Providers::new(quick()).model(config("openai", "gpt-4.1", &server.url()));
    let context = context();
    let answer = model.call(hi(), context.cx).await.unwrap();
    assert_eq!(answer["finishReason"], "tool-calls");
    assert_eq!(
        answer["output"],
        json!([
            {"type": "text", "text": "Let me see. "},
            {"type": "tool-call", "id": "call_a", "name": "look", "args": {"q": "café"}},
            {"type": "tool-call", "id": "call_b", "name": "send", "args": {}},
        ])
    );
    let previews = context.previews.borrow();
    let shown: Vec<_> = previews.iter().filter_map(|p| p.tool_call.clone()).collect();
    assert_eq!(
        shown,
        [json!({"callId": "call_a", "name": "look"}), json!({"callId": "call_b", "name": "send"})]
    );
    assert!(previews.iter().all(|p| p.invocation_id == "invocation-1"));
}

#[tokio::test]
async fn previews_hold_the_whole_text_in_few_pieces() {
    let words: Vec<Json> = (0..200).map(|n| json!({"content": format!("w{n} ")})).collect();
    let server = ModelServer::start(vec![Reply::stream(&openai(&words, "stop"))]).await;
    let limits = ProviderLimits { preview_interval: Duration::from_secs(10), ..quick() };
    let model = Providers::new(limits).model(config("openai", "gpt-4.1", &server.url()));
    let context = context();
    let answer = model.call(hi(), context.cx).await.unwrap();
    let shown: Vec<String> = context.previews.borrow().iter().filter_map(|p| p.text.clone()).collect();
    assert_eq!(json!(shown.concat()), answer["output"][0]["text"]);
    assert!(shown.len() <= 2, "{} previews", shown.len());
}

#[tokio::test]
async fn a_custom_endpoint_says_its_own_windows_and_keeps_odd_model_names() {
    let body = openai(
        &[
            json!({"reasoning_content": "hm, "}),
            json!({"reasoning_content": "well"}),
            json!({"content": "yes"}),
        ],
        "length",
    );
    let server = ModelServer::start(vec![Reply::stream(&body)]).await;
    let mut config = config("custom", "house-model-max", &server.url());
    config.settings = ProviderSettings::parse(&json!({
        "contextWindow": 4096, "maxTokens": 512, "compat": {"maxTokensField": "max_completion_tokens", "supportsUsageInStreaming": false},
    }))
    .unwrap();
    let answer = ask(config, hi()).await;
    let pi = json!({"provider": "custom", "model": "house-model-max", "replay": "turn"});
    assert_eq!(
        answer["output"][0],
        json!({"type": "reasoning", "text": "hm, well", "providerMetadata": {"pi": pi}})
    );
    assert_eq!(answer["output"][1]["text"], "yes");
    assert_eq!(answer["finishReason"], "length");
    assert_eq!(answer["evidence"]["extras"]["contextWindow"], 4096);
    assert_eq!(answer["evidence"]["extras"]["maxOutputTokens"], 512);
    let body = &server.requests()[0].body;
    assert_eq!(body["model"], "house-model-max");
    assert_eq!(body["max_completion_tokens"], 512);
    for absent in ["max_tokens", "reasoning_effort", "stream_options", "prompt_cache_key"] {
        assert!(body.get(absent).is_none(), "{absent}: {body}");
    }
}

#[tokio::test]
async fn an_anthropic_answer_keeps_signed_reasoning_text_and_tool_calls() {
    let body = anthropic_answer(
        &[
            vec![
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                json!({"type": "thinking_delta", "thinking": "hmm"}),
                json!({"type": "signature_delta", "signature": "sig"}),
            ],
            vec![json!({"type": "redacted_thinking", "data": "dark"})],
            vec![
                json!({"type": "text", "text": ""}),
                json!({"type": "text_delta", "text": "Ça "}),
                json!({"type": "text_delta", "text": "va"}),
            ],
            vec![
                json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}),
                json!({"type": "input_json_delta", "partial_json": "{\"q\":"}),
                json!({"type": "input_json_delta", "partial_json": "\"x\"}"}),
            ],
        ],
        "tool_use",
    );
    let server = ModelServer::start(vec![Reply::stream(&body).in_pieces(3)]).await;
    let answer = ask(config("anthropic", "claude-sonnet-4-5", &server.url()), hi()).await;
    let pi = json!({"provider": "anthropic", "model": "claude-sonnet-4-5", "signature": "sig"});
    let dark =
        json!({"provider": "anthropic", "model": "claude-sonnet-4-5", "signature": "dark", "redacted": true});
    assert_eq!(
        answer["output"],
        json!([
            {"type": "reasoning", "text": "hmm", "providerMetadata": {"pi": pi}},
            {"type": "reasoning", "text": "", "providerMetadata": {"pi": dark}},
            {"type": "text", "text": "Ça va"},
            {"type": "tool-call", "id": "toolu_1", "name": "look", "args": {"q": "x"}},
        ])
    );
    assert_eq!(answer["finishReason"], "tool-calls");
    assert_eq!(
        answer["usage"],
        json!({"inputTokens": 10, "outputTokens": 15, "totalTokens": 35, "cachedTokens": 6, "cacheWriteTokens": 4})
    );
    assert_eq!(answer["evidence"]["resolvedModel"], "claude-x");
    assert_eq!(answer["evidence"]["extras"]["producer"]["api"], "anthropic-messages");

    // The next step gives back what was signed, and says which tool failed.
    let blocks = answer["output"].as_array().unwrap().clone();
    let producer = answer["evidence"]["extras"]["producer"].clone();
    let next = call(vec![
        item::instructions("be brief"),
        item::user_text("hi"),
        item::assistant(blocks, Some(&producer)),
        item::tool_result("toolu_1", "look", "failed", "no"),
    ]);
    ask(config("anthropic", "claude-sonnet-4-5", &server.url()), next).await;
    let request = &server.requests()[1];
    assert_eq!(request.path, "/v1/messages");
    assert!(request.head.to_ascii_lowercase().contains(&format!("x-api-key: {KEY}")));
    let messages = request.body["messages"].as_array().unwrap();
    assert_eq!(
        messages[1]["content"],
        json!([
            {"type": "thinking", "thinking": "hmm", "signature": "sig"},
            {"type": "redacted_thinking", "data": "dark"},
            {"type": "text", "text": "Ça va"},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"q": "x"}},
        ])
    );
    assert_eq!(messages[2]["content"][0]["is_error"], true);
    assert_eq!(messages[2]["content"][0]["tool_use_id"], "toolu_1");
    assert_eq!(request.body["max_tokens"], 64_000);
}

fn wants_json() -> ModelCall {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    ModelCall { output_schema: Some(Arc::new(schema)), ..hi() }
}

#[tokio::test]
async fn a_structured_answer_is_one_json_block() {
    let server = ModelServer::start(vec![Reply::stream(&says("```json\n{\"n\": 3}\n```"))]).await;
    let answer = ask(config("openai", "gpt-4.1", &server.url()), wants_json()).await;
    assert_eq!(answer["output"], json!([{"type": "json", "value": {"n": 3}}]));
    let body = &server.requests()[0].body;
    assert_eq!(body["response_format"]["type"], "json_schema");
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("JSON Schema"));
}

#[tokio::test]
async fn a_schema_that_the_provider_refuses_is_asked_for_in_words_only() {
    let refused = Reply::error(
        400,
        json!({"error": {"message": "Invalid schema for response_format", "type": "invalid_request_error"}}),
    );
    let server = ModelServer::start(vec![refused, Reply::stream(&says("{\"n\": 3}"))]).await;
    let answer = ask(config("openai", "gpt-4.1", &server.url()), wants_json()).await;
    assert_eq!(answer["output"], json!([{"type": "json", "value": {"n": 3}}]));
    assert!(server.requests()[1].body.get("response_format").is_none());
}

#[tokio::test]
async fn a_structured_answer_that_is_no_json_is_invalid_output() {
    let server = ModelServer::start(vec![Reply::stream(&says("I would rather not"))]).await;
    let answer = ask(config("custom", "m", &server.url()), wants_json()).await;
    assert_eq!((failure(&answer).code, failure(&answer).retryable), (FailureCode::InvalidOutput, false));
    assert!(server.requests()[0].body.get("response_format").is_none());
}

#[tokio::test]
async fn a_google_answer_keeps_its_signature_and_its_calls_get_ids_of_their_own() {
    let part = |parts: Json, finish: Json| {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}], "modelVersion": "gemini-x",
            "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "totalTokenCount": 17}})
    };
    let call = json!({"functionCall": {"name": "look", "args": {"q": "x"}}, "thoughtSignature": "sig"});
    let body = frames(&[part(json!([{"text": "So: "}]), Json::Null), part(json!([call]), json!("STOP"))]);
    let server = ModelServer::start(vec![Reply::stream(&body).in_pieces(4)]).await;
    let answer = ask(config("google", "gemini-2.5-pro", &server.url()), hi()).await;
    assert_eq!(answer["finishReason"], "tool-calls", "{answer}");
    assert_eq!(answer["output"][0], json!({"type": "text", "text": "So: "}));
    let block = &answer["output"][1];
    assert_eq!((&block["name"], &block["args"]), (&json!("look"), &json!({"q": "x"})));
    assert_eq!(block["providerMetadata"]["pi"]["signature"], "sig");
    assert_eq!(
        answer["usage"],
        json!({"inputTokens": 10, "outputTokens": 7, "totalTokens": 17, "reasoningTokens": 3})
    );
    assert_eq!(answer["evidence"]["resolvedModel"], "gemini-x");
    let again = ask(config("google", "gemini-2.5-pro", &server.url()), hi()).await;
    assert_ne!(again["output"][1]["id"], block["id"]);

    let id = block["id"].as_str().unwrap().to_owned();
    let next = super::call(vec![
        item::user_text("hi"),
        item::assistant(
            answer["output"].as_array().unwrap().clone(),
            Some(&answer["evidence"]["extras"]["producer"]),
        ),
        item::tool_result(&id, "look", "completed", "1"),
    ]);
    ask(config("google", "gemini-2.5-pro", &server.url()), next).await;
    let request = server.requests()[2].clone();
    assert!(request.path.contains("gemini-2.5-pro:streamGenerateContent"), "{}", request.path);
    let contents = &request.body["contents"];
    assert_eq!(contents[1]["parts"][1]["thoughtSignature"], "sig");
    assert_eq!(contents[2]["parts"][0]["functionResponse"]["name"], "look");
}

#[tokio::test]
async fn a_google_stream_without_a_finish_reason_was_cut() {
    let body = frames(&[json!({"candidates": [{"content": {"parts": [{"text": "half"}]}}]})]);
    let server = ModelServer::start(vec![Reply::stream(&body)]).await;
    let once = ProviderLimits { attempts: 1, ..quick() };
    let answer = ask_with(once, config("google", "gemini-2.5-pro", &server.url()), hi()).await;
    assert_eq!(failure(&answer).code, FailureCode::Transient);
}
