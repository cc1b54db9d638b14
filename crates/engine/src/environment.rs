//! Builds the environment of a child process: which variables are inherited, removed and added.
//!
//! A child inherits only a fixed list of variables and those of `pass-env`, so that it learns no secret of
//! the daemon. Variables that restrict the child to its cards are set last.

use std::collections::HashSet;
use std::ffi::OsString;

use plimsoll_base::{Order, ends_as_secret};
use plimsoll_process::Environment;
use plimsoll_wire::env as names;

use super::isolation::{Visible, VisibleCards};

/// Variables that pass from the daemon to a child, by their whole names. Capitals do not count, because
/// programs read `http_proxy` and `HTTP_PROXY`.
const PASSED: &[&str] = &[
    // The system, the user and his languages.
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TZDIR TERM TMPDIR PWD HOSTNAME GCONV_PATH LOCPATH GLIBC_TUNABLES \
     LD_LIBRARY_PATH LD_PRELOAD LD_AUDIT LD_BIND_NOW LD_DEBUG LD_DEBUG_OUTPUT",
    // Guard around the whole server.
    "PLIMSOLL_GUARD PLIMSOLL_GUARD_PAGES PLIMSOLL_GUARD_TRACE",
    // Engines and what they are written in.
    "LLAMA_CACHE LLAMA_OFFLINE LLAMA_SET_ROWS LLAMA_KV_CACHE_DEBUG LLAMA_GRAPH_REUSE_DISABLE LLAMA_GRAPH_RESULT_DEBUG \
     NEOReadDebugKeys AIP_MODE AIP_HEALTH_ROUTE AIP_PREDICT_ROUTE MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK \
     TF_CPP_MIN_LOG_LEVEL TF_ENABLE_ONEDNN_OPTS TF_FORCE_GPU_ALLOW_GROWTH TF_GPU_ALLOCATOR TF_XLA_FLAGS \
     TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTHONNOUSERSITE \
     PYTHONSAFEPATH PYTHONUNBUFFERED PYTHONUTF8 PYTHONIOENCODING PYTHONHASHSEED PYTHONMALLOC PYTHONOPTIMIZE \
     PYTHONWARNINGS PYTHONFAULTHANDLER PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX VIRTUAL_ENV CONDA_PREFIX \
     CONDA_DEFAULT_ENV MAMBA_ROOT_PREFIX UV_CACHE_DIR UV_PYTHON UV_PYTHON_INSTALL_DIR UV_TOOL_DIR UV_OFFLINE \
     UV_PROJECT_ENVIRONMENT RUST_LOG RUST_BACKTRACE NODE_ENV NODE_PATH NODE_OPTIONS NODE_EXTRA_CA_CERTS",
    // Models from the network.
    "HF_HOME HF_ENDPOINT HF_ASSETS_CACHE HF_DATASETS_CACHE HF_DATASETS_OFFLINE HUGGINGFACE_HUB_CACHE MODEL_ENDPOINT \
     MODELSCOPE_CACHE DO_NOT_TRACK HTTP_PROXY HTTPS_PROXY ALL_PROXY FTP_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR \
     REQUESTS_CA_BUNDLE CURL_CA_BUNDLE",
    // Containers that run an engine.
    "DOCKER_HOST DOCKER_CONTEXT DOCKER_CONFIG DOCKER_CERT_PATH DOCKER_TLS_VERIFY DOCKER_API_VERSION \
     DOCKER_DEFAULT_PLATFORM CONTAINER_HOST CONTAINERS_CONF CONTAINERS_STORAGE_CONF CONTAINERS_REGISTRIES_CONF \
     PODMAN_USERNS DBUS_SESSION_BUS_ADDRESS DISPLAY WAYLAND_DISPLAY XAUTHORITY",
];

/// Beginnings of names that only engines and the runtimes of cards read, without secrets of another kind. One
/// that ends as those of secrets do passes by `pass-env` alone.
/// `TF_*` would be Terraform's too, `NEO*` a database's, `UV_*` and `NODE_*` those of package registries.
const PASSED_BEGINNINGS: &[&str] = &[
    "LC_ XDG_ MALLOC_",
    "CUDA_ CUDNN_ CUBLAS NVIDIA_ NVTE_ NCCL_ __NV_ __GLX_ __EGL_ ROCR_ ROCM_ ROCBLAS_ HIP_ HIPBLASLT_ HSA_ AMD_ MIOPEN_ \
     RCCL_ GPU_ VK_ RADV_ ANV_ MESA_ LIBGL_ DRI_ DISABLE_LAYER_ ENABLE_LAYER_ LVP_ ONEAPI_ SYCL_ ZE_ ZES_ ZET_ UR_ OCL_ \
     OPENCL_ INTEL_ IGC_ ASCEND_ MUSA_ MTHREADS_",
    "GGML_ LLAMA_ARG_ LLAMA_LOG_ MTMD_ VLLM_ SGLANG_ SGL_ RAY_ TGI_ TRTLLM_ TLLM_ TENSORRT_ FLASHINFER_ EXLLAMA WHISPER_ \
     COMFYUI_ OLLAMA_ TORCH PYTORCH_ TRITON_ XLA_ JAX_ ACCELERATE_ DEEPSPEED_ XFORMERS_ OMP_ GOMP_ KMP_ MKL_ OPENBLAS_ \
     BLIS_ NUMEXPR_ DNNL_ ONEDNN_ OMPI_ GLOO_ UCX_ FI_",
    "HF_HUB_ HF_XET_ TRANSFORMERS_ TOKENIZERS_",
];

const AIP_HTTP_PORT: &str = "AIP_HTTP_PORT";

/// Variables of the daemon that never pass to a child, however they are named.
const NOT_INHERITED: &[&str] = &[
    // The key of the router itself, by which the verbs of the command line ask it.
    "PLIMSOLL_API_KEY",
    names::LLAMA_API_KEY,
    names::LLAMA_SERVER_ROUTER_PORT,
    "LLAMA_SERVER_CHILD_MODE",
    "LLAMA_APP_CMD",
    // The router's own settings, reserved in its children too (`server-models.cpp @ b10605`).
    "LLAMA_ARG_HOST",
    "LLAMA_ARG_PORT",
    "LLAMA_ARG_ALIAS",
    "LLAMA_ARG_MODEL",
    "LLAMA_ARG_MMPROJ",
    "LLAMA_ARG_HF_REPO",
    "LLAMA_ARG_MODELS_DIR",
    "LLAMA_ARG_MODELS_MAX",
    "LLAMA_ARG_MODELS_PRESET",
    "LLAMA_ARG_MODELS_AUTOLOAD",
    "LLAMA_ARG_SSL_KEY_FILE",
    "LLAMA_ARG_SSL_CERT_FILE",
    // The daemon's port on Vertex AI, which an engine would take before its own (`server-http.cpp @ 0.5.0`).
    AIP_HTTP_PORT,
    // systemd's messages to the daemon; an engine that answered them would be taken for it.
    "NOTIFY_SOCKET",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LISTEN_FDNAMES",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "INVOCATION_ID",
    "JOURNAL_STREAM",
    "SYSTEMD_EXEC_PID",
    "MEMORY_PRESSURE_WATCH",
    "MEMORY_PRESSURE_WRITE",
    // The folders of its unit.
    "CACHE_DIRECTORY",
    "STATE_DIRECTORY",
];

/// Variable that ggml-vulkan reads (`ggml-vulkan.cpp: ggml_vk_instance_init @ b10605`); an empty list selects
/// no card.
pub(super) const VULKAN: &str = "GGML_VK_VISIBLE_DEVICES";
/// Variables of AMD's runtimes. ROCr is first, and takes an empty list for no device. HIP numbers what is
/// left; it ignores an empty list and would read `CUDA_VISIBLE_DEVICES` instead, and an entry that names no
/// card ends its list.
const ROCR: (&str, &str) = ("ROCR_VISIBLE_DEVICES", "");
const HIP: (&str, &str) = ("HIP_VISIBLE_DEVICES", "-1");
/// All cards that ROCr shows; ggml uses 16 at most. HIP counts what ROCr leaves.
const EVERY_HIP_CARD: &str = "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15";
/// Variables by which a program lists the devices of every backend but CUDA's; empty is unset.
pub(super) const EVERY_CARD_BUT_CUDAS: [(&str, &str); 3] =
    [(names::CUDA_VISIBLE_DEVICES, ""), (ROCR.0, EVERY_HIP_CARD), (HIP.0, EVERY_HIP_CARD)];
/// SYCL wants one selector; this one leaves the processors.
const SYCL: (&str, &str) = ("ONEAPI_DEVICE_SELECTOR", "*:cpu");
/// Makes Level Zero count its cards in the order of the PCI bus.
const LEVEL_ZERO_ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";

/// True for a variable that chooses cards for a runtime, other than Vulkan's.
pub fn chooses_cards(name: &str) -> bool {
    [names::CUDA_VISIBLE_DEVICES, ROCR.0, HIP.0, SYCL.0, LEVEL_ZERO_ORDER].contains(&name)
}

/// Shows the cards with these numbers of Vulkan's.
pub fn show_to_vulkan(environment: &mut Environment, numbers: &[usize]) {
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    environment.set(VULKAN, numbers.join(","));
}

/// True unless no card is shown to Vulkan.
pub fn shows_vulkan(environment: &Environment) -> bool {
    environment.get(VULKAN).is_none_or(|value| !value.is_empty())
}

/// Splits the daemon's environment into what children inherit and the names of the rest; `more` are names,
/// and beginnings that end in `*`, beside the usual ones.
pub fn inherited(
    daemon: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
) -> (Vec<(OsString, OsString)>, Vec<String>) {
    let words =
        |lists: &'static [&'static str]| lists.iter().flat_map(|words| words.split_ascii_whitespace());
    let upper = |name: &[u8]| name.to_ascii_uppercase();
    let exact: HashSet<Vec<u8>> = words(PASSED).chain(["_"]).map(|name| upper(name.as_bytes())).collect();
    let beginnings: Vec<&str> = words(PASSED_BEGINNINGS).collect();
    let passes = |(name, _): &(OsString, OsString)| {
        let name = upper(name.as_encoded_bytes());
        let is_usual = exact.contains(&name)
            || !ends_as_secret(&String::from_utf8_lossy(&name))
                && beginnings.iter().any(|start| name.starts_with(start.as_bytes()));
        is_usual || more.iter().any(|pattern| fits(&name, &upper(pattern.as_bytes())))
    };
    let (passed, rest): (Vec<_>, Vec<_>) = daemon.into_iter().partition(passes);
    let mut rest: Vec<String> = rest
        .iter()
        .map(|(name, _)| name.to_string_lossy().into_owned())
        .filter(|name| !NOT_INHERITED.contains(&name.as_str()))
        .collect();
    rest.order();
    (passed, rest)
}

fn fits(name: &[u8], pattern: &[u8]) -> bool {
    match pattern {
        [beginning @ .., b'*'] => name.starts_with(beginning),
        pattern => name == pattern,
    }
}

/// Returns the environment of a child of a daemon with the environment `daemon`.
///
/// `own` are the model's variables. `control_port` is set for a llama-server, which then reports its state.
/// `key` is the API key that the child requires of its clients; the environment hides it from `ps`.
pub fn child_environment(
    daemon: impl IntoIterator<Item = (OsString, OsString)>,
    own: &[(String, String)],
    visible: &Visible,
    control_port: Option<u16>,
    key: Option<&str>,
) -> Environment {
    let mut environment: Environment = daemon.into_iter().collect();
    for name in NOT_INHERITED {
        environment.remove(name);
    }
    for (name, value) in own {
        environment.set(name, value);
    }
    match visible {
        Visible::Cards(cards) => {
            environment.set(names::CUDA_VISIBLE_DEVICES, cards.cuda.join(","));
            hide_other_runtimes(&mut environment, own);
            show_to_others(&mut environment, cards);
        }
        Visible::NoCard => {
            environment.set(names::CUDA_VISIBLE_DEVICES, "");
            hide_other_runtimes(&mut environment, &[]);
        }
        Visible::AsInherited => {}
    }
    if let Some(port) = control_port {
        environment.set(names::LLAMA_SERVER_ROUTER_PORT, port.to_string());
        // In this mode llama-server ignores `--port`.
        if environment.get("AIP_MODE").is_some() {
            environment.set(AIP_HTTP_PORT, port.to_string());
        }
    }
    if let Some(key) = key {
        environment.set(names::LLAMA_API_KEY, key);
    }
    environment
}

/// Shows its own cards to AMD's and Intel's runtimes.
///
/// DECISION: AMD's by UUID, because numbers change with the kernel and with a card that is taken out. Cards
/// without a number of their own (APUs) are shown by ROCr's.
pub fn show_to_others(environment: &mut Environment, cards: &VisibleCards) {
    let listed = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
    };
    if !cards.rocr.is_empty() {
        environment.set(ROCR.0, cards.rocr.join(","));
        environment.set(HIP.0, listed(&mut (0..cards.rocr.len())));
    }
    if !cards.level_zero.is_empty() {
        let numbers = listed(&mut cards.level_zero.iter().copied());
        environment.set(SYCL.0, format!("level_zero:{numbers}"));
        environment.set(LEVEL_ZERO_ORDER, "1");
    }
}

/// Hides every card from the runtimes that do not read CUDA's variable, but for those that the model's own
/// variables `own` name for one of them.
///
/// DECISION: Vulkan counts cards in an order of its loader's own; its numbers are asked of the engine
/// ([`show_to_vulkan`]). Where no card of AMD's or Intel's is the daemon's, the user may give one to an
/// engine; else `own` has no such variable ([`chooses_cards`]).
fn hide_other_runtimes(environment: &mut Environment, own: &[(String, String)]) {
    environment.set(names::CUDA_DEVICE_ORDER, "PCI_BUS_ID");
    let chosen = |name: &str| own.iter().any(|(own, _)| own == name);
    match (chosen(ROCR.0), chosen(HIP.0)) {
        (false, false) => {
            environment.set(ROCR.0, ROCR.1);
            environment.set(HIP.0, HIP.1);
        }
        // Without a list of its own HIP would look for CUDA's UUIDs.
        (true, false) => environment.set(HIP.0, EVERY_HIP_CARD),
        (_, true) => {}
    }
    for (name, nothing) in [SYCL, (VULKAN, "")] {
        if !chosen(name) {
            environment.set(name, nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon() -> Vec<(OsString, OsString)> {
        [
            ("PATH", "/bin"),
            ("LLAMA_API_KEY", "the daemon's"),
            ("PLIMSOLL_API_KEY", "the daemon's"),
            ("LLAMA_ARG_THREADS", "8"),
            ("LLAMA_ARG_MODELS_MAX", "1"),
            ("CUDA_VISIBLE_DEVICES", "0,1,2,3"),
            ("NOTIFY_SOCKET", "/run/x"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }

    fn cuda(uuids: &[&str]) -> Visible {
        let cuda = uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
        Visible::Cards(VisibleCards { cuda, ..VisibleCards::default() })
    }

    fn text<'a>(environment: &'a Environment, name: &str) -> Option<&'a str> {
        environment.get(name).map(|value| value.to_str().unwrap())
    }

    #[test]
    fn a_child_sees_its_own_cards_and_no_others_whatever_the_user_set() {
        let visible = cuda(&["GPU-b", "GPU-d"]);
        let own = [("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned())];
        let child = child_environment(daemon(), &own, &visible, None, None);
        assert_eq!(text(&child, "CUDA_VISIBLE_DEVICES"), Some("GPU-b,GPU-d"));
        assert_eq!(text(&child, "CUDA_DEVICE_ORDER"), Some("PCI_BUS_ID"));
    }

    #[test]
    fn no_other_runtime_sees_a_card_unless_the_model_names_one_for_vulkan() {
        let own = [("GGML_VK_VISIBLE_DEVICES".to_owned(), "1".to_owned())];
        let cards = cuda(&["GPU-b"]);
        for (visible, own, vulkan) in
            [(&cards, &own[..], "1"), (&cards, &[][..], ""), (&Visible::NoCard, &own[..], "")]
        {
            let child = child_environment(daemon(), own, visible, None, None);
            assert_eq!(text(&child, "GGML_VK_VISIBLE_DEVICES"), Some(vulkan));
            assert_eq!(text(&child, "ROCR_VISIBLE_DEVICES"), Some(""));
            assert_eq!(text(&child, "HIP_VISIBLE_DEVICES"), Some("-1"));
            assert_eq!(text(&child, "ONEAPI_DEVICE_SELECTOR"), Some("*:cpu"));
        }
        let inherited = child_environment(daemon(), &[], &Visible::AsInherited, None, None);
        assert_eq!(text(&inherited, "GGML_VK_VISIBLE_DEVICES"), None);
    }

    #[test]
    fn a_child_on_cards_of_amd_or_intel_sees_these_by_identity_and_none_by_another_runtime() {
        let names = [
            "CUDA_VISIBLE_DEVICES",
            "ROCR_VISIBLE_DEVICES",
            "HIP_VISIBLE_DEVICES",
            "ONEAPI_DEVICE_SELECTOR",
            "GGML_VK_VISIBLE_DEVICES",
        ];
        let seen = |cards: VisibleCards| {
            let child = child_environment(daemon(), &[], &Visible::Cards(cards), None, None);
            names.map(|name| text(&child, name).unwrap_or("unset").to_owned())
        };
        let rocr = vec!["GPU-946d7e1ef9b172dd".to_owned(), "2".to_owned()];
        let amd = seen(VisibleCards { rocr, ..VisibleCards::default() });
        assert_eq!(amd, ["", "GPU-946d7e1ef9b172dd,2", "0,1", "*:cpu", ""]);
        let intel = seen(VisibleCards { level_zero: vec![1], ..VisibleCards::default() });
        assert_eq!(intel, ["", "", "-1", "level_zero:1", ""]);
        // By Vulkan alone, whose numbers come from the engine.
        assert_eq!(seen(VisibleCards::default()), ["", "", "-1", "*:cpu", ""]);
        assert!(names[..4].iter().all(|name| chooses_cards(name)) && !chooses_cards(names[4]));
    }

    #[test]
    fn a_model_that_names_cards_of_amds_gets_these_and_none_where_it_runs_on_the_host() {
        let cards = cuda(&["GPU-b"]);
        let given = |own: &[(&str, &str)], visible: &Visible| {
            let own = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let child = child_environment(daemon(), &own.collect::<Vec<_>>(), visible, None, None);
            ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"].map(|name| text(&child, name).map(str::to_owned))
        };
        let texts = |rocr: Option<&str>, hip: Option<&str>| [rocr.map(str::to_owned), hip.map(str::to_owned)];
        let (rocr, hip) = (("ROCR_VISIBLE_DEVICES", "1"), ("HIP_VISIBLE_DEVICES", "0"));
        assert_eq!(given(&[rocr], &cards), texts(Some("1"), Some(EVERY_HIP_CARD)));
        assert_eq!(given(&[hip], &cards), texts(None, Some("0")));
        assert_eq!(given(&[rocr, hip], &cards), texts(Some("1"), Some("0")));
        assert_eq!(given(&[rocr, hip], &Visible::NoCard), texts(Some(""), Some("-1")));
    }

    #[test]
    fn engine_variables_are_inherited_and_other_variables_of_the_shell_are_not() {
        let usual = [
            "PATH",
            "HOME",
            "LC_ALL",
            "LD_LIBRARY_PATH",
            "CUDA_HOME",
            "NVIDIA_DRIVER_CAPABILITIES",
            "NCCL_DEBUG",
            "HSA_OVERRIDE_GFX_VERSION",
            "ROCR_VISIBLE_DEVICES",
            "VK_DRIVER_FILES",
            "GGML_VK_MEMORY_LOGGER",
            "ONEAPI_DEVICE_SELECTOR",
            "http_proxy",
            "HTTPS_PROXY",
            "no_proxy",
            "HF_HOME",
            "HF_HUB_OFFLINE",
            "OMP_NUM_THREADS",
            "PYTORCH_CUDA_ALLOC_CONF",
            "VLLM_LOGGING_LEVEL",
            "SSL_CERT_FILE",
            "LLAMA_ARG_THREADS",
            "VLLM_FLASHINFER_MAX_TOKENS",
            "NEOReadDebugKeys",
        ];
        let secret = [
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "SSH_AUTH_SOCK",
            "DATABASE_URL",
            "HFX",
            "é",
            // Of programs whose other variables engines read.
            "HF_TOKEN",
            "HUGGING_FACE_HUB_TOKEN",
            "VLLM_API_KEY",
            "VLLM_API_KEY_2",
            "OLLAMA_API_KEY",
            "NVIDIA_API_KEY",
            "RAY_REDIS_PASSWORD",
            "ray_auth",
            "PLIMSOLL_FLEET_KEY",
            // Of programs whose names begin alike.
            "UV_PUBLISH_TOKEN",
            "UV_INDEX_URL",
            "PIP_INDEX_URL",
            "NODE_AUTH_TOKEN",
            "TF_CLI_CONFIG_FILE",
            "TF_VAR_database",
            "NEO4J_URI",
            "LD_CLIENT_SIDE_ID",
            "SD_BUILD_URL",
            "DOCKER_AUTH_CONFIG",
            "CONTAINER_REGISTRY",
            "CONDA_EXE",
            "PYTHON_KEYRING_BACKEND",
        ];
        let all = || usual.iter().chain(&secret).map(|name| (name.into(), "1".into()));
        let (passed, rest) = inherited(all(), &[]);
        assert_eq!(passed.len(), usual.len());
        let mut expected = secret.map(str::to_owned);
        expected.sort_unstable();
        assert_eq!(rest, expected);
        let more = ["AWS_*".to_owned(), "DATABASE_URL".to_owned(), "hf_token".to_owned()];
        assert_eq!(inherited(all(), &more).0.len(), usual.len() + 3);
        assert_eq!(inherited(all(), &["*".to_owned()]).1.len(), 0);
        // The daemon's own key is no engine's, and not worth a word.
        let of_systemd = [
            "PLIMSOLL_API_KEY",
            "NOTIFY_SOCKET",
            "SYSTEMD_EXEC_PID",
            "MEMORY_PRESSURE_WATCH",
            "STATE_DIRECTORY",
        ];
        let (_, rest) = inherited(of_systemd.map(|name| (name.into(), "/run/x".into())), &[]);
        assert!(rest.is_empty());
    }

    #[test]
    fn an_engine_on_vertex_ai_listens_on_its_own_port() {
        let vertex = |mode: &[(&str, &str)]| {
            let daemon = [("AIP_HTTP_PORT", "8080")].into_iter().chain(mode.iter().copied());
            let daemon = daemon.map(|(name, value)| (name.into(), value.into()));
            child_environment(daemon, &[], &Visible::AsInherited, Some(4000), None)
        };
        assert_eq!(text(&vertex(&[]), "AIP_HTTP_PORT"), None);
        assert_eq!(text(&vertex(&[("AIP_MODE", "PREDICTION")]), "AIP_HTTP_PORT"), Some("4000"));
    }

    #[test]
    fn a_model_on_the_host_can_open_no_context() {
        let child = child_environment(daemon(), &[], &Visible::NoCard, None, None);
        assert_eq!(text(&child, "CUDA_VISIBLE_DEVICES"), Some(""));
    }

    #[test]
    fn daemon_variables_stay_with_the_daemon_and_model_defaults_pass() {
        let child = child_environment(daemon(), &[], &Visible::AsInherited, None, None);
        for name in ["LLAMA_API_KEY", "PLIMSOLL_API_KEY", "LLAMA_ARG_MODELS_MAX", "NOTIFY_SOCKET"] {
            assert_eq!(text(&child, name), None, "{name}");
        }
        assert_eq!(text(&child, "LLAMA_ARG_THREADS"), Some("8"));
        assert_eq!(text(&child, "CUDA_VISIBLE_DEVICES"), Some("0,1,2,3"));
    }

    #[test]
    fn a_llama_server_gets_the_channel_and_a_key_of_its_own() {
        let own = [("LLAMA_ARG_THREADS".to_owned(), "2".to_owned())];
        let child = child_environment(daemon(), &own, &Visible::NoCard, Some(8080), Some("k"));
        assert_eq!(text(&child, "LLAMA_SERVER_ROUTER_PORT"), Some("8080"));
        assert_eq!(text(&child, "LLAMA_API_KEY"), Some("k"));
        assert_eq!(text(&child, "LLAMA_ARG_THREADS"), Some("2"));
    }
}
