//! Reader of Ollama's store: manifests by name and tag, and blobs by digest (`manifest/`,
//! `server/images.go`).

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_base::Order;
use plimsoll_config::{Configuration, ConfiguredModel, Launch, RequestFilters};
use plimsoll_flags::{FlagOrigin, FlagValue, Options, Setting, Warning, quoted};
use plimsoll_model::Dialect;
use plimsoll_probe::headers::read_model;
use serde_json::{Map, Value};

use crate::differences::{OF_OLLAMA, of_program};
use crate::{ImportError, LONGEST};

/// A store has dozens of models.
const MOST: usize = 10_000;
/// Folders below `manifests`: host, namespace, model; the files are the tags.
const DEPTH: usize = 4;
/// Ollama unloads an idle model after this time (`OLLAMA_KEEP_ALIVE`).
const KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Models that one line names.
const MOST_NAMED: usize = 3;
/// The context of a model that sets none (`OLLAMA_CONTEXT_LENGTH`).
const CONTEXT: u64 = 4096;

/// Parameters, each with the flag of llama-server that means the same.
const PARAMETERS: &str = "num_ctx=--ctx-size num_batch=--batch-size num_thread=--threads num_predict=--predict \
    num_keep=--keep seed=--seed temperature=--temp top_k=--top-k top_p=--top-p min_p=--min-p typical_p=--typical \
    repeat_last_n=--repeat-last-n repeat_penalty=--repeat-penalty presence_penalty=--presence-penalty \
    frequency_penalty=--frequency-penalty num_gpu=--n-gpu-layers";

/// The parameters that these flags set, by Ollama's names.
pub fn ollama_parameters(options: &Options) -> Vec<(&'static str, String)> {
    let known = PARAMETERS.split_whitespace().filter_map(|row| row.split_once('='));
    known.filter_map(|(name, flag)| Some((name, options.text(flag)?.to_owned()))).collect()
}

/// A layer of a manifest: the last word of its type (`model`, `params`, …), and its digest.
fn layer(layer: &Value) -> (&str, &str) {
    let kind = layer["mediaType"].as_str().and_then(|kind| kind.rsplit('.').next());
    (kind.unwrap_or_default(), layer["digest"].as_str().unwrap_or_default())
}

/// Text of the warning of a model that cannot be imported.
pub(crate) const NOT_IMPORTED: &str = "is not imported";

/// True for the context that [`read`] gives to a model which sets none, and for what follows from it.
pub(crate) fn is_usual_context(setting: &Setting) -> bool {
    let names = ["--ctx-size", "--ubatch-size"];
    names.contains(&setting.flag.name()) && setting.value == FlagValue::Text(CONTEXT.to_string())
}

/// The manifests of a store, by which a change of it is seen.
pub(crate) fn manifests(store: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let folder = store.join("manifests");
    let mut files = Vec::new();
    // A store that cannot be read has no models; `read` says why.
    let _ = walk(&folder, &mut Vec::new(), &mut files);
    let of = |parts: Vec<String>| {
        let path = folder.join(parts.join("/"));
        let about = fs::metadata(&path).ok()?;
        Some((path, about.len(), about.modified().ok()?))
    };
    files.into_iter().filter_map(of).collect()
}

/// Reads the store in a folder, or with `ollama` the one of this machine.
pub(crate) fn read(
    source: &Path,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ImportError> {
    let folder = if source == Path::new("ollama") { of_machine(env) } else { source.to_owned() };
    // The server may run in another folder.
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let manifests = folder.join("manifests");
    if !manifests.is_dir() {
        return Err(ImportError::FindStore(folder));
    }
    let mut files = Vec::new();
    walk(&manifests, &mut Vec::new(), &mut files)
        .map_err(|error| ImportError::ReadStore { path: manifests.clone(), error })?;
    let warnings = of_program(&folder.to_string_lossy(), OF_OLLAMA);
    let mut configuration = Configuration { warnings, ..Configuration::default() };
    let mut templates_of_ollama: Vec<String> = Vec::new();
    for parts in files {
        let path = manifests.join(parts.join("/"));
        let at = FlagOrigin::file(&path.to_string_lossy().into(), 0);
        let mut model = named(&parts, at.clone());
        let (reported, templates) = (Vec::new(), Vec::new());
        let mut reader = StoreReader { folder: &folder, at, name: quoted(&model.name), reported, templates };
        match reader.model(&path, &mut model) {
            Ok(()) => configuration.models.push(model),
            Err(why) => reader.notify(format!("{NOT_IMPORTED}: {why}"), "`ollama pull` fetches it again"),
        }
        configuration.warnings.append(&mut reader.reported);
        templates_of_ollama.append(&mut reader.templates);
    }
    configuration.warnings.extend(of_templates(&folder, &templates_of_ollama));
    Ok(configuration)
}

/// Models whose chat template of Ollama is not used.
fn of_templates(folder: &Path, names: &[String]) -> Option<Warning> {
    let named: Vec<String> = names.iter().take(MOST_NAMED).map(|name| format!("`{name}`")).collect();
    let more = match names.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!(
        "{}{more} have a template in Ollama's own language; llama-server uses the one of the model file",
        named.join(", ")
    );
    let at = FlagOrigin::file(&folder.to_string_lossy().into(), 0);
    let hint = "set --chat-template or --chat-template-file in `flags` if a model answers oddly";
    (!names.is_empty()).then(|| Warning::new(at, text).hint(hint))
}

/// Content of the header of a model's file.
#[derive(Debug, Default)]
struct ModelFacts {
    context: Option<u64>,
    /// It has no other use: Ollama tells by the same key (`server/images.go: Capabilities`).
    embeds: bool,
}

impl ModelFacts {
    fn of(argv: &[String]) -> Self {
        let file = argv.iter().skip_while(|word| *word != "--model").nth(1);
        // The engine refuses files that cannot be read here.
        let model = file.and_then(|file| read_model(Path::new(file), Dialect::Ggml).ok());
        model.map_or_else(Self::default, |model| Self {
            context: Some(model.hyper.context_train.into()),
            embeds: model.hyper.pooling.is_some(),
        })
    }
}

/// The folder of this machine's store.
pub(crate) fn of_machine(env: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let of_user = || Some(Path::new(&env("HOME")?).join(".ollama/models")).filter(|folder| folder.is_dir());
    let set = env("OLLAMA_MODELS").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    set.or_else(of_user).unwrap_or_else(|| "/usr/share/ollama/.ollama/models".into())
}

/// The manifests below a folder, each by the parts of its path, in the order of their names.
fn walk(folder: &Path, parts: &mut Vec<String>, files: &mut Vec<Vec<String>>) -> io::Result<()> {
    let mut names: Vec<String> = fs::read_dir(folder)?
        .take(MOST)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.order();
    for name in names {
        let path = folder.join(&name);
        parts.push(name);
        match parts.len() {
            DEPTH if path.is_file() && files.len() < MOST => files.push(parts.clone()),
            1..DEPTH if path.is_dir() => walk(&path, parts, files)?,
            _ => {}
        }
        parts.pop();
    }
    Ok(())
}

/// The entry with the name that `ollama list` shows, and the short one of the tag `latest`.
fn named(parts: &[String], at: FlagOrigin) -> ConfiguredModel {
    let stem = match parts {
        [host, namespace, base, _] if host == "registry.ollama.ai" && namespace == "library" => base.clone(),
        [host, namespace, base, _] if host == "registry.ollama.ai" => format!("{namespace}/{base}"),
        _ => parts[..parts.len().saturating_sub(1)].join("/"),
    };
    let tag = parts.last().map_or("", String::as_str);
    let mut model = ConfiguredModel::new(format!("{stem}:{tag}"), at);
    model.aliases = (tag == "latest").then_some(stem).into_iter().collect();
    model
}

struct StoreReader<'a> {
    /// The model, if it has a chat template of Ollama's.
    templates: Vec<String>,
    folder: &'a Path,
    at: FlagOrigin,
    name: String,
    reported: Vec<Warning>,
}

impl StoreReader<'_> {
    fn notify(&mut self, text: String, hint: &str) {
        self.reported.push(Warning::new(self.at.clone(), format!("`{}` {text}", self.name)).hint(hint));
    }

    fn model(&mut self, path: &Path, model: &mut ConfiguredModel) -> Result<(), String> {
        let text = plimsoll_file::read(path, LONGEST)
            .map_err(|error| format!("its manifest cannot be read ({error})"))?;
        let manifest: Value =
            serde_json::from_slice(&text).map_err(|_| "its manifest is not one of Ollama's".to_owned())?;
        let mut argv: Vec<String> = Vec::new();
        let mut filters = RequestFilters::default();
        let mut has_template = false;
        for (kind, digest) in manifest["layers"].as_array().into_iter().flatten().map(layer) {
            match kind {
                "model" if argv.iter().any(|word| word == "--model") => {
                    return Err("it has several model files".to_owned());
                }
                "model" => argv.extend(["--model".to_owned(), self.gguf(digest)?]),
                "projector" => argv.extend(["--mmproj".to_owned(), self.gguf(digest)?]),
                "adapter" => argv.extend(["--lora".to_owned(), self.gguf(digest)?]),
                "params" => argv.extend(self.parameters(digest, &mut filters)?),
                "system" => filters.system = Some(self.text(digest)?).filter(|text| !text.trim().is_empty()),
                "messages" => self.notify(
                    "has its own `messages`, which are not added to requests".to_owned(),
                    "send them from the client",
                ),
                "template" => has_template = true,
                "license" => {}
                _ => self.notify(
                    format!("has a layer `{}`, which is left out", quoted(kind)),
                    "no engine of plimsoll reads it",
                ),
            }
        }
        if !argv.iter().any(|word| word == "--model") {
            return Err("it has no GGUF file, as is the case for cloud models and other formats".to_owned());
        }
        let facts = ModelFacts::of(&argv);
        self.context(&mut argv, facts.context);
        if facts.embeds {
            // Ollama embeds with every model of this kind; llama-server with this flag, and in one batch.
            argv.push("--embeddings".to_owned());
            let tokens = argv.iter().skip_while(|word| *word != "--ctx-size").nth(1).cloned();
            argv.extend(tokens.into_iter().flat_map(|tokens| ["--ubatch-size".to_owned(), tokens]));
        } else if has_template {
            self.templates.push(self.name.clone());
        }
        let at = self.at.clone();
        let options = Options::from_argv_at(&argv, |_| at.clone()).map_err(|error| error.to_string())?;
        model.launch = Launch::LlamaServer { program: None, options };
        model.ttl = Some(KEEP_ALIVE);
        model.filters = Arc::new(filters);
        Ok(())
    }

    /// Sets the context: Ollama's own where the model has none, and never more than the model was trained
    /// for.
    fn context(&mut self, argv: &mut Vec<String>, trained: Option<u64>) {
        let at = argv.iter().position(|word| word == "--ctx-size");
        let set = at.and_then(|at| argv.get(at + 1)?.parse::<u64>().ok());
        let most = trained.filter(|trained| *trained > 0).unwrap_or(u64::MAX);
        match (at, set) {
            (Some(at), Some(set)) if set > most => {
                argv[at + 1] = most.to_string();
                self.notify(
                    format!(
                        "asks for a context of {set} tokens, and gets the {most} that it was trained for"
                    ),
                    "raise --ctx-size in `flags` with --rope-scaling",
                );
            }
            (Some(_), _) => {}
            (None, _) => {
                let context = CONTEXT.min(most);
                argv.extend(["--ctx-size".to_owned(), context.to_string()]);
                if context == CONTEXT {
                    self.notify(
                        format!("gets Ollama's usual context of {CONTEXT} tokens"),
                        "raise --ctx-size in `flags`",
                    );
                }
            }
        }
    }

    /// A blob that is a text.
    fn text(&self, digest: &str) -> Result<String, String> {
        let bytes = plimsoll_file::read(&self.blob(digest)?, LONGEST).map_err(|error| error.to_string())?;
        String::from_utf8(bytes).map_err(|_| "its system message is not UTF-8".to_owned())
    }

    /// The flags of a model's parameters; those that a request can set without one are defaults of its
    /// requests.
    fn parameters(&mut self, digest: &str, filters: &mut RequestFilters) -> Result<Vec<String>, String> {
        let text = plimsoll_file::read(&self.blob(digest)?, LONGEST).map_err(|error| error.to_string())?;
        let parameters: Map<String, Value> =
            serde_json::from_slice(&text).map_err(|_| "its parameters are not a JSON object".to_owned())?;
        let mut argv = Vec::new();
        for (name, value) in &parameters {
            let mut known = PARAMETERS.split(' ').filter_map(|row| row.split_once('='));
            match (known.find(|(known, _)| known == name), value) {
                // -1 layers are Ollama's "as many as fit", which the plan decides here.
                (Some(("num_gpu", _)), value) if value.as_i64().is_some_and(|layers| layers < 0) => {}
                (Some((_, flag)), Value::Number(number)) => {
                    argv.extend([flag.to_owned(), number.to_string()])
                }
                (None, Value::Array(texts)) if name == "stop" && texts.iter().all(Value::is_string) => {
                    filters.default.insert(name.clone(), value.clone());
                }
                _ => self.notify(
                    format!("sets `{} = {}`, which has no flag", quoted(name), quoted(&value.to_string())),
                    "set it in the client",
                ),
            }
        }
        Ok(argv)
    }

    /// The path of a blob that starts as a GGUF file.
    fn gguf(&self, digest: &str) -> Result<String, String> {
        let path = self.blob(digest)?;
        let mut magic = [0; 4];
        match plimsoll_file::open(&path).and_then(|mut file| file.read_exact(&mut magic)) {
            Ok(()) if magic == *b"GGUF" => Ok(path.to_string_lossy().into_owned()),
            Ok(()) => Err(format!("{} is not a GGUF file", path.display())),
            Err(error) => Err(format!("{} cannot be read ({error})", path.display())),
        }
    }

    /// The path of a blob; a digest of any other form could name any file.
    fn blob(&self, digest: &str) -> Result<PathBuf, String> {
        let hex = digest.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Ok(self.folder.join("blobs").join(format!("sha256-{hex}")))
        } else {
            Err(format!("`{}` is not a digest", quoted(digest)))
        }
    }
}
