//! Names the HTTP requests that make an idle engine free memory: ComfyUI's `/free`, vLLM's `/sleep`.

/// The requests of a kind of engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freeing {
    /// Answers with its jobs, which run on without a connection, as lists in an object; all are empty while
    /// it is idle.
    pub jobs: Option<&'static str>,
    /// The request that frees memory, and its body.
    pub free: (&'static str, &'static str),
    /// The request that it needs before it can answer again.
    pub wake: Option<&'static str>,
}

impl Freeing {
    /// `server.py` of ComfyUI: the worker thread frees after the answer, and loads again with its next job.
    pub(super) const COMFYUI: Self = Self {
        jobs: Some("/queue"),
        free: ("/free", r#"{"unload_models":true,"free_memory":true}"#),
        wake: None,
    };
    /// `vllm/entrypoints/serve/sleep/api_router.py`, which is there with `VLLM_SERVER_DEV_MODE=1`: weights go
    /// to the host's memory, and the cache is dropped.
    pub(super) const VLLM: Self = Self { jobs: None, free: ("/sleep?level=1", ""), wake: Some("/wake_up") };
}
