//! Finds models in folders, in the caches of Hugging Face and llama.cpp, and in Ollama's store.
//!
//! Each is named with the flags that its files ask for: projector, draft, adapter, embeddings. A file that is
//! not served is named with the reason.

mod chosen;
mod kind;
mod names;
mod pairs;
mod repository;
mod walk;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_config::{Configuration, ConfiguredModel, Launch};
use plimsoll_flags::{FlagOrigin, Options, Warning};
use plimsoll_hub::Caches;
use plimsoll_model::split::{SplitName, siblings};
use plimsoll_model::{Dialect, Model};
use plimsoll_plan::Models;
use plimsoll_probe::headers::{read_header, read_model};

use self::kind::FileKind;
pub use self::repository::Repository;
use self::walk::{ListedFile, Listing};
use crate::ollama;

/// Places in which models are looked for.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Folders, and single files, which may belong to one another.
    pub paths: Vec<PathBuf>,
    /// The hub's and llama.cpp's caches.
    pub caches: Caches,
    /// The store of Ollama.
    pub ollama: Option<PathBuf>,
    /// A repository of the hub, which the engine fetches.
    pub repository: Option<Repository>,
    /// The engine whose files they are.
    pub dialect: Dialect,
}

/// A model that was found.
#[derive(Clone, Debug)]
pub struct FoundModel {
    pub name: String,
    /// Its flags, without those that are chosen for the cards.
    pub options: Options,
    /// Its headers, or the reason why a server did not give them.
    models: Result<Models, String>,
    /// Settings that come with it.
    entry: ConfiguredModel,
}

/// Models that were found, and files that are not served.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub models: Vec<FoundModel>,
    /// Files with the reason for which they are not served.
    pub passed_over: Vec<(PathBuf, String)>,
    /// Time after which files that may still be written are worth another look.
    pub wait: Option<Duration>,
}

/// The files that were settled at one time, by which a change is seen without opening one.
pub type Settled = Vec<(PathBuf, u64, SystemTime)>;

impl Places {
    /// The caches and stores of this machine.
    pub fn of_machine(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let store = ollama::of_machine(env);
        Self {
            caches: Caches::of_environment(|name| env(name).map(Into::into)),
            ollama: Some(store).filter(|store| store.join("manifests").is_dir()),
            ..Self::default()
        }
    }

    /// Their names, for a message.
    pub fn in_words(&self) -> String {
        let mut all: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        all.extend(self.repository.iter().map(|repository| repository.name().to_owned()));
        if self.caches != Caches::default() {
            all.push("the caches of the hub and of llama.cpp".to_owned());
        }
        all.extend(self.ollama.iter().map(|store| store.display().to_string()));
        all.join(", ")
    }

    fn roots(&self) -> Vec<Root> {
        let of = |place| Root { repository: None, place };
        let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
            self.paths.iter().map(|path| absolute(path)).partition(|path| path.is_dir());
        let files = (!files.is_empty()).then_some(RootPlace::Files(files));
        let hub = self.caches.repositories().into_iter();
        let hub = hub.map(|(repo, path)| Root { repository: Some(repo), place: RootPlace::Folder(path) });
        let caches = self.caches.folders().iter().filter(|folder| folder.is_dir()).cloned();
        let named = folders.into_iter().map(RootPlace::Folder).chain(files).map(of);
        named.chain(hub).chain(caches.map(RootPlace::Folder).map(of)).collect()
    }

    /// The files that are settled now.
    pub fn settled(&self, now: SystemTime) -> Settled {
        let mut all = Vec::new();
        for root in self.roots() {
            let files = root.place.listing().files.into_iter();
            let settled = files.filter(|file| file.unsettled(now).is_none());
            all.extend(settled.map(|file| (file.path, file.length, file.modified)));
        }
        all.extend(self.ollama.iter().flat_map(|store| ollama::manifests(store)));
        all
    }
}

/// Files that may belong to one another, and the repository of which they are a copy.
struct Root {
    repository: Option<String>,
    place: RootPlace,
}

enum RootPlace {
    Folder(PathBuf),
    Files(Vec<PathBuf>),
}

impl RootPlace {
    fn listing(&self) -> Listing {
        match self {
            Self::Folder(folder) => Listing::of_folder(folder),
            Self::Files(files) => Listing::of_files(files),
        }
    }

    /// The path of a file below the folder, or its name.
    fn relative<'a>(&self, path: &'a Path) -> &'a Path {
        let below = match self {
            Self::Folder(folder) => path.strip_prefix(folder).ok(),
            Self::Files(_) => None,
        };
        below.unwrap_or_else(|| Path::new(path.file_name().unwrap_or_default()))
    }

    /// A path without ending that tells a file from others of its name.
    fn longer_name(&self, path: &Path) -> String {
        let folder = match self {
            Self::Folder(_) => self.relative(path).parent(),
            Self::Files(_) => path.parent().and_then(Path::file_name).map(Path::new),
        };
        folder.unwrap_or(Path::new("")).join(names::stem(path)).to_string_lossy().into_owned()
    }
}

/// The server may run in another folder.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Finds the models of all places.
pub fn find(places: &Places, now: SystemTime) -> Found {
    let (found, dialect) = (Found::default(), places.dialect);
    let mut finder = Finder { now, dialect, found, names: Vec::new(), real: HashSet::new() };
    for root in places.roots() {
        finder.root(&root);
    }
    if let Some(store) = &places.ollama {
        finder.ollama(store);
    }
    if let Some(repository) = &places.repository {
        finder.repository(repository);
    }
    let Finder { mut found, mut names, .. } = finder;
    names::distinct(&mut names);
    for (model, (name, _)) in found.models.iter_mut().zip(names) {
        model.entry.name.clone_from(&name);
        model.name = name;
    }
    found
}

/// The same once no file is younger than the time after which it is taken for whole.
pub fn find_settled(places: &Places) -> Found {
    let found = find(places, SystemTime::now());
    let Some(wait) = found.wait else { return found };
    std::thread::sleep(wait);
    find(places, SystemTime::now())
}

/// The same without regard to files that may still be written, for a plan.
pub fn find_read(places: &Places) -> Found {
    find(places, SystemTime::now() + walk::SETTLED)
}

/// A file with its header.
struct ReadFile {
    path: PathBuf,
    kind: FileKind,
    /// The header of all files of its set; a projector and a draft have one too.
    model: Option<Model>,
}

struct Finder {
    now: SystemTime,
    dialect: Dialect,
    found: Found,
    /// The name of each model, and a longer one.
    names: Vec<(String, String)>,
    /// Files that were read already, under any name.
    real: HashSet<PathBuf>,
}

impl Finder {
    fn pass_over(&mut self, path: &Path, why: impl Into<String>) {
        self.found.passed_over.push((path.to_owned(), why.into()));
    }

    fn add(
        &mut self,
        name: String,
        longer: String,
        argv: Vec<String>,
        models: Result<Models, String>,
        file: &Path,
    ) {
        let origin = FlagOrigin::file(&file.to_string_lossy().into(), 0);
        match Options::from_argv_at(&argv, |_| origin.clone()) {
            Ok(options) => {
                let entry = ConfiguredModel::new(name.clone(), origin);
                self.names.push((name.clone(), longer));
                self.found.models.push(FoundModel { name, options, models, entry });
            }
            Err(error) => self.pass_over(file, error.problem.to_string()),
        }
    }

    /// A model on the hub, with the flags that its header asks for where it could be had.
    fn repository(&mut self, repository: &Repository) {
        let name = repository.name().to_owned();
        let mut argv = words(&["--hf-repo", &name]);
        let models = repository.models(self.dialect);
        match models.as_ref().map(|models| kind::purpose(&models.main)) {
            Ok(Ok(purpose)) => argv.extend(purpose.map(str::to_owned)),
            Ok(Err(why)) => return self.pass_over(Path::new(&name), why),
            Err(_) => {}
        }
        self.add(name.clone(), name.clone(), argv, models, Path::new(&name));
    }

    fn root(&mut self, root: &Root) {
        let Listing { files, passed_over, .. } = root.place.listing();
        self.found.passed_over.extend(passed_over);
        let read = self.read(&files);
        let (models, others): (Vec<ReadFile>, Vec<ReadFile>) =
            read.into_iter().partition(|file| file.kind == FileKind::Model);
        let known: Vec<(&Path, &Model)> =
            models.iter().filter_map(|file| Some((file.path.as_path(), file.model.as_ref()?))).collect();
        let mut besides: HashMap<usize, Vec<&ReadFile>> = HashMap::new();
        let mut adapters = Vec::new();
        for file in &others {
            match pairs::matched(&file.path, &file.kind, file.model.as_ref(), &known) {
                Ok(at) if matches!(file.kind, FileKind::Adapter { .. }) => adapters.push((file, at[0])),
                Ok(at) => at.into_iter().for_each(|at| besides.entry(at).or_default().push(file)),
                Err(why) => self.pass_over(&file.path, why),
            }
        }
        let mut flags = HashMap::new();
        for (at, &(path, model)) in known.iter().enumerate() {
            let files = besides.remove(&at).unwrap_or_default();
            let Some((argv, models)) = self.with_others(path, model, &files) else { continue };
            let is_only = known.iter().filter(|(other, _)| other.parent() == path.parent()).count() == 1;
            let name = match &root.repository {
                Some(repo) => names::in_repository(repo, path),
                None => names::in_folder(root.place.relative(path), is_only),
            };
            let longer = root.place.longer_name(path);
            self.add(name, longer, argv.clone(), Ok(models.clone()), path);
            flags.insert(at, (argv, models));
        }
        for (adapter, at) in adapters {
            // An adapter changes what its model says, so it is a model of its own beside it.
            let Some((argv, models)) = flags.get(&at).cloned() else { continue };
            let file = adapter.path.to_string_lossy();
            let name = names::stem(&adapter.path);
            let longer = format!("{name} on {}", names::stem(known[at].0));
            self.add(name, longer, [argv, words(&["--lora", &file])].concat(), Ok(models), &adapter.path);
        }
    }

    /// The headers of all files that are whole. The rest is passed over.
    fn read(&mut self, files: &[ListedFile]) -> Vec<ReadFile> {
        let by_path: HashMap<&Path, &ListedFile> =
            files.iter().map(|file| (file.path.as_path(), file)).collect();
        let mut read = Vec::new();
        for file in files {
            let name = file.path.to_string_lossy();
            let split = SplitName::parse(&name);
            let set = siblings(&name);
            // A set is read by its first file, and what it lacks is named once.
            let first_here = set.iter().find(|path| by_path.contains_key(Path::new(path)));
            if first_here.is_some_and(|first| Path::new(first) != file.path) {
                continue;
            }
            if let Some(number) = set.iter().position(|path| !by_path.contains_key(Path::new(path))) {
                let count = split.map_or(1, |split| split.count);
                self.pass_over(&file.path, format!("file {} of {count} is missing", number + 1));
                continue;
            }
            if !self.real.insert(file.real.clone()) {
                self.pass_over(&file.path, format!("it is the same file as {}", file.real.display()));
                continue;
            }
            let all = || set.iter().filter_map(|path| by_path.get(Path::new(path)));
            if let Some(empty) = all().find(|file| file.length == 0) {
                self.pass_over(&empty.path, "it is empty");
            } else if let Some(wait) = all().filter_map(|file| file.unsettled(self.now)).max() {
                self.found.wait = self.found.wait.max(Some(wait));
                self.pass_over(&file.path, "it changed a moment ago, and may still be written");
            } else if all().any(|file| file.is_partial) {
                self.pass_over(&file.path, "it is still being downloaded");
            } else {
                match read_file(&file.path, self.dialect) {
                    Ok(file) => read.push(file),
                    Err(why) => self.pass_over(&file.path, why),
                }
            }
        }
        read
    }

    /// The flags and headers of a model with the files that belong to it.
    fn with_others(
        &mut self,
        path: &Path,
        model: &Model,
        files: &[&ReadFile],
    ) -> Option<(Vec<String>, Models)> {
        let purpose = match kind::purpose(model) {
            Ok(purpose) => purpose,
            Err(why) => {
                self.pass_over(path, why);
                return None;
            }
        };
        let mut argv = words(&["--model", &path.to_string_lossy()]);
        let mut models = Models::from(model.clone());
        argv.extend(purpose.map(str::to_owned));
        for file in files {
            let is_projector = matches!(file.kind, FileKind::Projector { .. });
            let (flag, slot) = if is_projector {
                ("--mmproj", &mut models.projector)
            } else {
                ("--model-draft", &mut models.draft)
            };
            if slot.is_some() {
                let used = argv.iter().skip_while(|word| *word != flag).nth(1).cloned().unwrap_or_default();
                self.pass_over(&file.path, format!("{used} is used for {} instead", path.display()));
                continue;
            }
            slot.clone_from(&file.model);
            argv.extend(words(&[flag, &file.path.to_string_lossy()]));
        }
        Some((argv, models))
    }

    fn ollama(&mut self, store: &Path) {
        let Configuration { models, warnings, .. } = match ollama::read(store, &|_| None) {
            Ok(configuration) => configuration,
            Err(error) => return self.pass_over(store, error.to_string()),
        };
        for warning in warnings.into_iter().filter(|warning| warning.text.contains(ollama::NOT_IMPORTED)) {
            self.pass_over(Path::new(&warning.origin.to_string()), warning.text);
        }
        for entry in models {
            let Launch::LlamaServer { options, .. } = &entry.launch else { continue };
            let mut options = options.clone();
            // Ollama's usual context is chosen without a look at the memory.
            options.retain(|setting| !ollama::is_usual_context(setting));
            let file = |flag: &str| options.text(flag).map(PathBuf::from);
            let header = |path: PathBuf| read_model(&path, self.dialect).map_err(|error| error.fault());
            let Some(path) = file("--model") else { continue };
            let blob = path.canonicalize().unwrap_or_else(|_| path.clone());
            let main = header(path.clone()).and_then(|main| kind::purpose(&main).map(|_| main));
            match main {
                Ok(main) => {
                    let projector = file("--mmproj").and_then(|path| header(path).ok());
                    let models = Ok(Models { main, draft: None, projector });
                    self.real.insert(blob);
                    self.names.push((entry.name.clone(), entry.name.clone()));
                    self.found.models.push(FoundModel { name: entry.name.clone(), options, models, entry });
                }
                Err(why) => self.pass_over(&path, format!("`{}`: {why}", entry.name)),
            }
        }
    }
}

fn read_file(path: &Path, dialect: Dialect) -> Result<ReadFile, String> {
    let stem = names::stem(path);
    let kind = read_header(path, dialect, |header| kind::kind(header, &stem));
    let kind = kind.map_err(|error| error.fault())?;
    let model = match &kind {
        FileKind::Other(why) => return Err((*why).to_owned()),
        FileKind::Adapter { .. } => None,
        _ => Some(read_model(path, dialect).map_err(|error| error.fault())?),
    };
    Ok(ReadFile { path: path.to_owned(), kind, model })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Files that are not served, as warnings of a configuration.
pub(crate) fn warnings(passed_over: &[(PathBuf, String)]) -> Vec<Warning> {
    let warning = |(path, why): &(PathBuf, String)| {
        Warning::new(FlagOrigin::file(&path.to_string_lossy().into(), 0), format!("not served: {why}"))
    };
    passed_over.iter().map(warning).collect()
}
