//! Finds out which server a load test runs against: its model, its build and its process.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use plimsoll_process::reading::MeasuredProcess;
use serde_json::Value;

use super::answer::LoadFailure;
use super::client::Client;
use super::prompt::{LoadPrompt, WordLength, probe};
use super::target::Target;

/// Time limit of questions about the server itself.
const SOON: Duration = Duration::from_secs(30);

/// The server, as found at the start of a test.
#[derive(Clone, Debug)]
pub struct LoadTarget {
    pub target: Target,
    pub key: Option<String>,
    pub model: String,
    /// Process given by the user; otherwise the process is found by its port.
    pub pid: Option<u32>,
    /// True for `plimsoll serve`, whose engines listen on other ports.
    pub is_plimsoll: bool,
}

impl LoadTarget {
    /// Connects, and reads the model list if no model is given.
    pub async fn meet(
        target: Target,
        key: Option<String>,
        model: Option<String>,
        pid: Option<u32>,
    ) -> Result<Self, LoadFailure> {
        let mut server = Self { target, key, model: String::new(), pid, is_plimsoll: false };
        // Asked even if a model is named; the failure matters only where the list is needed.
        let listed = server.get("/v1/models").await;
        server.model = match model {
            Some(model) => model,
            None => first_model(&listed?)
                .ok_or(LoadFailure::Malformed("the server lists no model; name one with --model"))?,
        };
        // `/api/version` is Ollama's path; plimsoll answers it with its own name, llama-server with 404.
        server.is_plimsoll =
            server.get("/api/version").await.is_ok_and(|about| about.to_string().contains("plimsoll"));
        Ok(server)
    }

    pub async fn get(&self, path: &str) -> Result<Value, LoadFailure> {
        self.client(SOON).json(Method::GET, path, Bytes::new()).await
    }

    pub fn client(&self, patience: Duration) -> Client {
        Client::new(&self.target, self.key.as_deref(), patience)
    }

    /// Sends a first request, which loads the model and reports configuration errors at once.
    pub async fn begin(&self, patience: Duration) -> Result<(), LoadFailure> {
        let prompt = LoadPrompt { depth: 4, answer: 1, number: 0, nonce: 0 };
        let request = prompt.request(&self.model, WordLength::default());
        let answer = self.client(patience).ask(request).await;
        answer.map(|_| ())
    }

    /// Properties of a llama-server.
    async fn props(&self) -> Option<Value> {
        // `/upstream/MODEL/` passes through to the engine, as in llama-swap.
        let path =
            if self.is_plimsoll { format!("/upstream/{}/props", self.model) } else { "/props".to_owned() };
        self.get(&path).await.ok()
    }

    /// Tokens of context that a request has, if the server reports them.
    pub async fn context(&self) -> Option<u64> {
        self.props().await?["default_generation_settings"]["n_ctx"].as_u64().filter(|context| *context > 0)
    }

    /// llama.cpp build number, if the server reports one.
    pub async fn build(&self) -> Option<u32> {
        let props = self.props().await?;
        // `build_info` is `b10605-1a2b3c4`, or `b0-unknown` for a build without git, which says nothing.
        let (_, after) = props["build_info"].as_str()?.split_once('b')?;
        let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok().filter(|build| *build > 0)
    }

    /// Measures the size of words in the server's tokens. Falls back to one token per word, for a server that
    /// does not count or has too small a context.
    pub async fn yardstick(&self, patience: Duration) -> WordLength {
        let mut client = self.client(patience);
        let mut counts = [None; 2];
        for (count, times) in counts.iter_mut().zip(1..) {
            let answer = client.ask(probe(&self.model, times)).await;
            *count = answer.ok().and_then(|answer| answer.prompt_tokens);
        }
        let [once, twice] = counts;
        once.zip(twice).and_then(|(once, twice)| WordLength::of(once, twice)).unwrap_or_default()
    }

    /// The process to measure: the one given, otherwise the listener of the port; behind plimsoll, the
    /// model's engine.
    pub async fn process(&self) -> Option<MeasuredProcess> {
        if let Some(pid) = self.pid {
            return MeasuredProcess::find(pid);
        }
        if !self.target.is_here() {
            return None;
        }
        let mut port = self.target.port;
        if self.is_plimsoll {
            let engine = self.running().await?;
            port = match engine["proxy"].as_str()?.strip_prefix("http://") {
                Some(address) => address.parse::<Target>().ok()?.port,
                // An engine on a Unix socket has no port to be found by.
                None => return MeasuredProcess::find(u32::try_from(engine["pid"].as_u64()?).ok()?),
            };
        }
        // The search reads the descriptors of all processes, which takes milliseconds and would block the
        // clients.
        tokio::task::spawn_blocking(move || MeasuredProcess::listening_on(port)).await.ok().flatten()
    }

    /// plimsoll's own entry for the model's engine.
    pub async fn running(&self) -> Option<Value> {
        let running = self.get("/running").await.ok()?;
        let list = running["running"].as_array()?;
        list.iter().find(|entry| entry["model"] == self.model.as_str()).cloned()
    }
}

fn first_model(listed: &Value) -> Option<String> {
    let model = listed["data"].as_array()?.first()?;
    model["id"].as_str().map(str::to_owned)
}
