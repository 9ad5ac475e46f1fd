//! The tables, as `migrations/sqlite` makes them.

diesel::table! {
    tenant (singleton) {
        singleton -> BigInt,
        id -> Text,
        name -> Text,
        created_at -> BigInt,
        updated_at -> BigInt,
        generation -> BigInt,
    }
}

diesel::table! {
    logs (no) {
        no -> BigInt,
        session_id -> Text,
    }
}

diesel::table! {
    sessions (no) {
        no -> BigInt,
        id -> Text,
        agent_id -> Text,
        owner_user_id -> Text,
        sandbox_id -> Nullable<Text>,
        manifest_hash -> Text,
        status -> Text,
        active_turn_id -> Nullable<Text>,
        last_turn_id -> Nullable<Text>,
        owner -> Nullable<Text>,
        epoch -> BigInt,
        owner_expires_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    session_pins (no) {
        no -> BigInt,
        implementation_version -> Text,
        plugin_roots -> Nullable<Text>,
        info -> Nullable<Text>,
        creation -> Text,
        vault_ids -> Nullable<Text>,
        credential_selections -> Nullable<Text>,
        sandbox_owner_id -> Nullable<Text>,
        sandbox -> Nullable<Text>,
        sandbox_source -> Nullable<Text>,
        mcp_snapshot -> Nullable<Text>,
        mcp_diagnostics -> Nullable<Text>,
        created_at -> BigInt,
    }
}

diesel::table! {
    session_docs (no) {
        no -> BigInt,
        checkpoint -> Nullable<Text>,
        state -> Nullable<Text>,
        turn_start_state -> Nullable<Text>,
        history_from -> Nullable<BigInt>,
        history_snapshot -> Nullable<BigInt>,
        waits -> Nullable<Text>,
        error -> Nullable<Text>,
        last_output -> Nullable<Text>,
        variants -> Nullable<Text>,
    }
}

diesel::table! {
    manifests (hash) {
        hash -> Text,
        body -> Text,
    }
}

diesel::table! {
    definitions (id) {
        id -> Text,
        manifest_hash -> Text,
        implementation_version -> Text,
        plugin_roots -> Nullable<Text>,
    }
}

diesel::table! {
    commands (id) {
        id -> BigInt,
        log_no -> BigInt,
        key -> Text,
        digest -> Text,
        response -> Text,
    }
}

diesel::table! {
    effects (no) {
        no -> BigInt,
        id -> Text,
        log_no -> BigInt,
        turn_id -> Text,
        kind -> Text,
        status -> Text,
        request_hash -> Text,
        request -> Text,
        outcome -> Nullable<Text>,
        error -> Nullable<Text>,
        attempts -> BigInt,
        slimmed -> Bool,
        open_in -> Nullable<BigInt>,
    }
}

diesel::table! {
    events (no) {
        no -> BigInt,
        log_no -> BigInt,
        seq -> BigInt,
        kind -> Text,
        turn_id -> Nullable<Text>,
        body -> Text,
    }
}

diesel::table! {
    fold_snapshots (no) {
        no -> BigInt,
        log_no -> BigInt,
        cursor -> BigInt,
        base -> BigInt,
        keep -> BigInt,
        entries -> Text,
    }
}

diesel::table! {
    wakes (id) {
        id -> BigInt,
        log_no -> BigInt,
        reason -> Text,
        dedupe_key -> Nullable<Text>,
        created_at -> BigInt,
        attempts -> BigInt,
        retry_at -> Nullable<BigInt>,
        parked_at -> Nullable<BigInt>,
    }
}

diesel::table! {
    settings (key) {
        key -> Text,
        value -> Text,
    }
}

diesel::table! {
    principals (id) {
        id -> Text,
        role -> Text,
        token_hash -> Text,
        created_at -> BigInt,
    }
}

diesel::table! {
    credentials (vault_id, id) {
        vault_id -> Text,
        id -> Text,
        name -> Text,
        kind -> Text,
        binding -> Text,
        expires_at -> Nullable<Text>,
        created_at -> BigInt,
        rotated_at -> Nullable<BigInt>,
        kek_id -> Text,
        nonce -> Binary,
        ciphertext -> Binary,
        wrapped_dek -> Binary,
    }
}

diesel::table! {
    signing_keys (id) {
        id -> Text,
        state -> Text,
        alg -> Text,
        public_jwk -> Text,
        created_at -> BigInt,
        activated_at -> Nullable<BigInt>,
        retired_at -> Nullable<BigInt>,
        revoked_at -> Nullable<BigInt>,
        kek_id -> Text,
        nonce -> Binary,
        ciphertext -> Binary,
        wrapped_dek -> Binary,
    }
}

diesel::table! {
    idempotency (key) {
        key -> Text,
        body_hash -> Text,
        response -> Text,
    }
}

diesel::table! {
    audit (ord) {
        ord -> BigInt,
        id -> Text,
        at -> BigInt,
        actor -> Text,
        action -> Text,
        target -> Nullable<Text>,
        outcome -> Text,
    }
}

diesel::table! {
    model_usage (id) {
        id -> Text,
        effect_key -> Text,
        session_id -> Text,
        turn_id -> Text,
        agent_id -> Text,
        provider -> Nullable<Text>,
        model -> Nullable<Text>,
        input_tokens -> BigInt,
        output_tokens -> BigInt,
        total_tokens -> BigInt,
        cached_tokens -> BigInt,
        cache_write_tokens -> BigInt,
        reasoning_tokens -> BigInt,
        cost_usd -> Double,
        duplicate -> Bool,
        created_at -> BigInt,
    }
}

diesel::table! {
    workspaces (key) {
        key -> Text,
        session_id -> Text,
        sandbox_id -> Nullable<Text>,
        backend -> Text,
        image -> Text,
        state -> Text,
        created_at -> Text,
        updated_at -> Text,
    }
}

diesel::table! {
    sandboxes (id) {
        id -> Text,
        kind -> Text,
        spec -> Text,
        labels -> Text,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    sandbox_events (no) {
        no -> BigInt,
        sandbox_id -> Text,
        seq -> BigInt,
        body -> Text,
    }
}

diesel::table! {
    sandbox_removals (sandbox_id) {
        sandbox_id -> Text,
        since -> BigInt,
    }
}

diesel::table! {
    actions (no) {
        no -> BigInt,
        id -> Text,
        session_id -> Text,
        turn_id -> Text,
        agent_id -> Text,
        kind -> Text,
        status -> Text,
        generation -> BigInt,
        deadline_at -> Nullable<BigInt>,
        retry_at -> Nullable<BigInt>,
        parked_at -> Nullable<BigInt>,
        since -> BigInt,
        body -> Text,
        receipt -> Nullable<Text>,
        open_for -> Nullable<Text>,
    }
}

diesel::table! {
    endpoints (agent_id) {
        agent_id -> Text,
        url -> Text,
        implementation_version -> Text,
        manifest_hash -> Nullable<Text>,
        timeout_ms -> BigInt,
        max_concurrent -> BigInt,
        health -> Text,
        updated_at -> BigInt,
    }
}

diesel::table! {
    artifacts (id) {
        id -> Text,
        kind -> Text,
        name -> Text,
        content_type -> Text,
        session_id -> Nullable<Text>,
        latest_version -> BigInt,
        labels -> Nullable<Text>,
        created_at -> BigInt,
        updated_at -> BigInt,
    }
}

diesel::table! {
    artifact_versions (artifact_id, version) {
        artifact_id -> Text,
        version -> BigInt,
        blob_key -> Text,
        blob_size -> BigInt,
        size -> BigInt,
        sha256 -> Text,
        content_type -> Text,
        source -> Text,
        created_at -> BigInt,
    }
}

diesel::table! {
    artifact_content (artifact_id, version, sha256) {
        artifact_id -> Text,
        version -> BigInt,
        sha256 -> Text,
        blob_key -> Text,
        size -> BigInt,
        crc32 -> BigInt,
    }
}

diesel::table! {
    artifact_total (singleton) {
        singleton -> Integer,
        bytes -> BigInt,
    }
}

diesel::joinable!(effects -> logs (log_no));
diesel::joinable!(wakes -> logs (log_no));
diesel::allow_tables_to_appear_in_same_query!(effects, logs);
diesel::allow_tables_to_appear_in_same_query!(wakes, logs);
diesel::allow_tables_to_appear_in_same_query!(sessions, session_pins);
diesel::allow_tables_to_appear_in_same_query!(sessions, session_docs);
diesel::allow_tables_to_appear_in_same_query!(actions, endpoints);
diesel::allow_tables_to_appear_in_same_query!(artifacts, sessions);
