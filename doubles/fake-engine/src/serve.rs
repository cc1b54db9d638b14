//! Serves the HTTP routes of the fake llama-server.

use std::io;
use std::path::Path;
use std::rc::Rc;

use rustix::process::Signal;
use serde_json::json;
use tokio::sync::SemaphorePermit;
use tokio::time::{sleep, timeout};

use super::answers::{self, Dialect, Generation};
use super::engine::{Engine, bump};
use super::faults::{Abort, Fault};
use super::http::{Connection, JSON, Listener, Request, Socket};
use super::{death, stream};

/// Beginnings of the variables that `/fake/env` shows.
const SHOWN: [&str; 8] =
    ["CUDA_", "LLAMA_", "LD_PRELOAD", "PLIMSOLL_GUARD", "GGML_VK_", "ROCR_", "HIP_", "ONEAPI_"];

pub(crate) async fn accept(engine: Rc<Engine>, listener: Listener) {
    // An accept fails for want of descriptors at the most; the next one may do better.
    loop {
        if let Ok(socket) = listener.accept().await {
            bump(&engine.stats.connections);
            tokio::task::spawn_local(converse(Rc::clone(&engine), socket));
        }
    }
}

/// Serves one connection. Its errors are the client's business and end it.
async fn converse(engine: Rc<Engine>, socket: Box<dyn Socket>) -> io::Result<()> {
    let mut connection = Connection::new(socket, header_lines(&engine), keep_alive_line(&engine));
    let mut requests = 0;
    while let Some(mut request) = next_request(&engine, &mut connection).await? {
        requests += 1;
        request.keep_alive &= requests != engine.args.script.keep_alive_max;
        let flight = Flight::start(&engine);
        serve(&engine, &mut connection, &request).await?;
        flight.land();
        if !request.keep_alive {
            break;
        }
    }
    Ok(())
}

fn header_lines(engine: &Engine) -> String {
    let (name, port, pid) = (engine.args.name(), engine.port, engine.pid);
    format!("Server: llama.cpp\r\nX-Fake-Engine: model={name}; port={port}; pid={pid}\r\n")
}

/// What cpp-httplib tells a client whose connection stays open; nothing where there is no limit to tell.
fn keep_alive_line(engine: &Engine) -> String {
    let script = &engine.args.script;
    match (script.idle_close.as_secs(), script.keep_alive_max) {
        (_, 0) | (0, _) => String::new(),
        (timeout, max) => format!("Keep-Alive: timeout={timeout}, max={max}\r\n"),
    }
}

async fn next_request(engine: &Engine, connection: &mut Connection) -> io::Result<Option<Request>> {
    let patience = engine.args.script.idle_close;
    if patience.is_zero() {
        return connection.request().await;
    }
    timeout(patience, connection.request()).await.unwrap_or(Ok(None))
}

/// A request in flight; one that is dropped before it lands was aborted by its client.
struct Flight<'a> {
    engine: &'a Engine,
    landed: bool,
}

impl<'a> Flight<'a> {
    fn start(engine: &'a Engine) -> Self {
        bump(&engine.stats.in_flight);
        Self { engine, landed: false }
    }

    fn land(mut self) {
        self.landed = true;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let stats = &self.engine.stats;
        bump(if self.landed { &stats.served } else { &stats.aborted });
        stats.in_flight.set(stats.in_flight.get() - 1);
        self.engine.idle.notify_waiters();
    }
}

async fn serve(engine: &Engine, connection: &mut Connection, request: &Request) -> io::Result<()> {
    let keep = request.keep_alive;
    if request.path.starts_with("/fake/") {
        return connection.answer(200, JSON, &own(engine, &request.path), keep).await;
    }
    let is_health = matches!(request.path.as_str(), "/health" | "/v1/health");
    if !is_health && engine.args.api_key.is_some() && engine.args.api_key != request.key {
        return connection.answer(401, JSON, answers::INVALID_KEY, keep).await;
    }
    if engine.booking.get().is_none() {
        return connection.answer(503, JSON, answers::LOADING, keep).await;
    }
    if request.is_post {
        post(engine, connection, request).await
    } else {
        get(engine, connection, request).await
    }
}

async fn get(engine: &Engine, connection: &mut Connection, request: &Request) -> io::Result<()> {
    let args = &engine.args;
    let body = match request.path.as_str() {
        "/health" | "/v1/health" => answers::HEALTHY.to_owned(),
        "/models" | "/v1/models" => answers::models(args).to_string(),
        "/props" => answers::props(args).to_string(),
        // A task for the thread that computes (`server-context.cpp: get_slots @ b10605`).
        "/slots" if engine.hangs.get() => {
            return unless_gone(connection, std::future::pending()).await;
        }
        "/slots" => {
            let tokens = engine.cache.tokens();
            let (in_flight, computed) = (engine.stats.in_flight.get() - 1, engine.work.tokens());
            answers::slots(args, in_flight, tokens, computed).to_string()
        }
        "/metrics" => {
            return connection
                .answer(200, "text/plain; version=0.0.4", &metrics(engine), request.keep_alive)
                .await;
        }
        _ => {
            return connection.answer(404, JSON, answers::NOT_FOUND, request.keep_alive).await;
        }
    };
    connection.answer(200, JSON, &body, request.keep_alive).await
}

async fn post(engine: &Engine, connection: &mut Connection, request: &Request) -> io::Result<()> {
    let tokens = depth_tokens(&request.body);
    let dialect = match request.path.as_str() {
        "/v1/chat/completions" | "/chat/completions" => Dialect::Chat,
        "/v1/completions" | "/completions" => Dialect::Completions,
        "/completion" | "/infill" => Dialect::Native,
        path if path.starts_with("/slots/") => return act(engine, connection, request).await,
        _ => return post_plain(engine, connection, request, tokens).await,
    };
    if matches!(engine.args.script.fail, Some(Fault::ErrorAtDepth(most)) if tokens > most) {
        return fail(connection, false).await;
    }
    let _dive = Dive::start(engine, tokens).await;
    if !engine.args.script.prompt.is_zero() {
        let time = engine.cache.compute(&request.body, engine.args.script.prompt);
        let _working = engine.work.begin();
        unless_gone(connection, sleep(time)).await?;
    }
    compute(engine, connection, tokens).await?;
    let script = &engine.args.script;
    bump(&engine.stats.begun);
    let generation = Generation {
        dialect,
        model: &engine.model,
        id: (&engine.process, engine.stats.begun.get()),
        prompt_tokens: tokens,
        answer_tokens: script.events,
        signature: &engine.signature,
    };
    let _working = engine.work.begin();
    if stream::is_wanted(&request.body) {
        return stream::stream(script, connection, &generation, request.keep_alive).await;
    }
    let content = stream::content(0, script.answer_bytes);
    connection.answer(200, JSON, &generation.whole(&content), request.keep_alive).await
}

/// Saves or restores the slot (`server-context.cpp: handle_slots_save @ b11063`).
async fn act(engine: &Engine, connection: &mut Connection, request: &Request) -> io::Result<()> {
    let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap_or_default();
    let path = engine.args.slots.as_ref().zip(body["filename"].as_str());
    let path = path.map(|(folder, name)| Path::new(folder).join(name)).ok_or(io::ErrorKind::Unsupported);
    let script = &engine.args.script;
    let done = match (path, request.query.as_str()) {
        (Ok(path), "action=save") => {
            unless_gone(connection, sleep(script.save)).await?;
            engine.cache.save(&path, script.slot_bytes)
        }
        (Ok(path), "action=restore") => engine.cache.restore(&path),
        (Ok(_), _) => Err(io::ErrorKind::InvalidInput.into()),
        (Err(kind), _) => Err(kind.into()),
    };
    match done {
        Ok(answer) => connection.answer(200, JSON, &answer.to_string(), request.keep_alive).await,
        Err(error) => {
            connection.answer(400, JSON, &json!({ "error": error.to_string() }).to_string(), true).await
        }
    }
}

async fn post_plain(
    engine: &Engine,
    connection: &mut Connection,
    request: &Request,
    tokens: u64,
) -> io::Result<()> {
    let name = engine.args.name();
    let body = match request.path.as_str() {
        "/v1/embeddings" => answers::embeddings(name, tokens).to_string(),
        "/embedding" | "/embeddings" => answers::native_embedding().to_string(),
        "/rerank" | "/reranking" | "/v1/rerank" | "/v1/reranking" => {
            answers::rerank(name, &request.body, tokens).to_string()
        }
        // These read the vocabulary only.
        "/tokenize" => {
            return connection.answer(200, JSON, &answers::tokenize(tokens), request.keep_alive).await;
        }
        "/detokenize" => r#"{"content":"fake"}"#.to_owned(),
        "/apply-template" => {
            let body = answers::apply_template(&request.body);
            return connection.answer(200, JSON, &body, request.keep_alive).await;
        }
        _ => {
            return connection.answer(404, JSON, answers::NOT_FOUND, request.keep_alive).await;
        }
    };
    let _dive = Dive::start(engine, tokens).await;
    compute(engine, connection, tokens).await?;
    connection.answer(200, JSON, &body, request.keep_alive).await
}

/// Four bytes a token, over the whole body: near enough for a double, and the same for every endpoint.
pub(crate) fn depth_tokens(body: &[u8]) -> u64 {
    u64::try_from(body.len() / 4).unwrap_or(u64::MAX)
}

/// The prompt: its memory, its time, and what may go wrong in it.
async fn compute(engine: &Engine, connection: &mut Connection, tokens: u64) -> io::Result<()> {
    let script = &engine.args.script;
    if engine.hangs.get() {
        return unless_gone(connection, std::future::pending()).await;
    }
    script.hoard.take(engine.stats.served.get());
    let deep = if script.budget.shared { engine.stats.depth.get() } else { tokens };
    if engine.booking.get().is_some_and(|booking| booking.grow(deep).is_err()) {
        return abort(engine, connection).await;
    }
    let hangs = matches!(script.fail, Some(Fault::Silent { .. })) && engine.is_poisoned();
    if !script.delay.is_zero() && !hangs {
        let _working = engine.work.begin();
        unless_gone(connection, sleep(script.delay)).await?;
    }
    if engine.is_poisoned() && matches!(script.fail, Some(Fault::Silent { .. })) {
        return unless_gone(connection, std::future::pending()).await;
    }
    if engine.is_poisoned() {
        return fail(connection, matches!(script.fail, Some(Fault::Poisoned { drops: true, .. }))).await;
    }
    match script.fail {
        Some(Fault::OomAtDepth(most)) if tokens > most && script.strikes() => abort(engine, connection).await,
        Some(Fault::CrashAtDepth(most)) if tokens > most && script.strikes() => {
            death::of_signal(Signal::SEGV)
        }
        Some(Fault::HangMidRequest) if script.strikes() => {
            unless_gone(connection, std::future::pending()).await
        }
        Some(Fault::DropAtDepth(most)) if tokens > most => Err(io::ErrorKind::ConnectionAborted.into()),
        _ => Ok(()),
    }
}

/// Ends a request without what was asked for.
async fn fail(connection: &mut Connection, drops: bool) -> io::Result<()> {
    if !drops {
        connection.answer(500, JSON, answers::COMPUTE_ERROR, false).await?;
    }
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Aborts as ggml does, and ends or hangs as the script says.
async fn abort(engine: &Engine, connection: &mut Connection) -> io::Result<()> {
    death::notify_oom_at_depth();
    match engine.args.script.abort {
        Abort::Ends => std::process::abort(),
        // The one thread waits, so that nothing answers any more.
        Abort::Hangs => drop(death::debugger().status()),
        Abort::HangsLoop => drop(death::debugger().spawn()),
    }
    engine.hangs.set(true);
    unless_gone(connection, std::future::pending()).await
}

/// The tokens of a request, in the cache as long as it is answered.
struct Dive<'a> {
    engine: &'a Engine,
    tokens: u64,
    _slot: Option<SemaphorePermit<'a>>,
}

impl<'a> Dive<'a> {
    /// Waits for a slot, where they are counted.
    async fn start(engine: &'a Engine, tokens: u64) -> Self {
        let slot = match &engine.slots {
            // It is never closed.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let depth = &engine.stats.depth;
        depth.set(depth.get().saturating_add(tokens));
        Self { engine, tokens, _slot: slot }
    }
}

impl Drop for Dive<'_> {
    fn drop(&mut self) {
        let depth = &self.engine.stats.depth;
        depth.set(depth.get().saturating_sub(self.tokens));
    }
}

/// Waits, but not longer than the client does.
pub(crate) async fn unless_gone(
    connection: &mut Connection,
    wait: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::select! {
        () = wait => Ok(()),
        () = connection.client_gone() => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

/// The double's own endpoints: what a test asks of the process behind the proxy.
fn own(engine: &Engine, path: &str) -> String {
    let stats = &engine.stats;
    match path {
        "/fake/env" => {
            let argv: Vec<String> =
                std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let env: serde_json::Map<_, _> = std::env::vars_os()
                .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into()))
                .filter(|(name, _)| SHOWN.iter().any(|shown| name.starts_with(shown)))
                .collect();
            json!({ "env": env, "argv": argv, "pid": engine.pid, "port": engine.port }).to_string()
        }
        _ => json!({
            "connections": stats.connections.get(),
            "served": stats.served.get(),
            "aborted": stats.aborted.get(),
            "in_flight": stats.in_flight.get() - 1,
        })
        .to_string(),
    }
}

fn metrics(engine: &Engine) -> String {
    format!(
        "# HELP llamacpp:requests_processing Number of requests processing.\n\
         # TYPE llamacpp:requests_processing gauge\n\
         llamacpp:requests_processing {}\n{}",
        engine.stats.in_flight.get() - 1,
        engine.cache.metrics()
    )
}
