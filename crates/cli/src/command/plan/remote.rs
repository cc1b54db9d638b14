//! Downloads the header of a model on a server into a sparse file, so that `plimsoll plan` can read it.
//!
//! A sparse file has the header and the length of the real one, so searches and `--exact` read it like any
//! model. The files are removed when the command ends.

use std::fs;
use std::io::Write;
use std::path::Path;

use plimsoll_base::{Bytes, counted};
use plimsoll_flags::table::FlagClass;
use plimsoll_flags::{ModelParams, Options, Setting};
use plimsoll_hub::{Bounds, Hub, LocatedModel, ModelPlace, Origin, RemoteModel};
use plimsoll_planner::Plan;
use plimsoll_probe::folder::OwnedFolder;
use serde_json::{Value, json};

use super::Arguments;
use crate::report::ErrorReport;
use crate::terminal;

const FOLDER: &str = "plimsoll-remote-";

/// Files of the models that flags name on servers.
#[derive(Debug, Default)]
pub(super) struct RemoteFiles {
    folder: Option<OwnedFolder>,
    /// The flags of the files, in llama-server's spelling.
    words: Vec<String>,
    origins: Vec<Origin>,
    others: usize,
}

/// True where a model has to be looked for that is no file.
pub(super) fn names_some(params: &ModelParams) -> bool {
    params.remote_sources().iter().any(Option::is_some)
}

pub(super) fn hub(token: Option<&str>, limit: Option<Bytes>) -> Result<Hub, ErrorReport> {
    let usual = Bounds::default();
    Ok(Hub::of_environment(token, Bounds { header: limit.unwrap_or(usual.header), ..usual })?)
}

/// The parameters with a file for each model that was found.
pub(super) fn put(
    params: ModelParams,
    found: &LocatedModel,
    mut file: impl FnMut(&ModelPlace) -> Result<String, ErrorReport>,
) -> Result<ModelParams, ErrorReport> {
    let mut path = |place: &Option<ModelPlace>| place.as_ref().map(&mut file).transpose();
    Ok(ModelParams {
        model: path(&found.main)?.or(params.model),
        draft_model: path(&found.draft)?.or(params.draft_model),
        projector: path(&found.projector)?.or(params.projector),
        ..params
    })
}

impl RemoteFiles {
    /// Fetches what the flags name on servers; nothing for files of this machine.
    pub(super) fn fetch(arguments: &Arguments, options: &Options) -> Result<Self, ErrorReport> {
        let mut params = options.params(arguments.program())?;
        // `-m` beside an address names the place of the download.
        if params.remote.is_some() && params.model.as_ref().is_some_and(|path| !Path::new(path).exists()) {
            params.model = None;
        }
        if !names_some(&params) {
            return Ok(Self::default());
        }
        let hub = hub(options.text("--hf-token"), Some(arguments.header_limit))?;
        let found = hub.locate(&params, arguments.engine().kind.dialect())?;
        let mut files = Self { others: found.others, ..Self::default() };
        let named = put(ModelParams::of(arguments.program()), &found, |place| files.path(place))?;
        let flags = [("-m", named.model), ("-md", named.draft_model), ("-mm", named.projector)];
        files.words =
            flags.into_iter().filter_map(|(flag, path)| Some([flag.to_owned(), path?])).flatten().collect();
        Ok(files)
    }

    /// The first file of a model, which is written here if it is not on this machine.
    fn path(&mut self, place: &ModelPlace) -> Result<String, ErrorReport> {
        match place {
            ModelPlace::File(path) => Ok(path.to_string_lossy().into_owned()),
            ModelPlace::Remote(model) => self.write(model),
        }
    }

    fn write(&mut self, model: &RemoteModel) -> Result<String, ErrorReport> {
        let unwritten = ErrorReport::of("cannot store the header that was fetched");
        let folder = match self.folder.take() {
            Some(folder) => folder,
            None => OwnedFolder::create(FOLDER).map_err(unwritten)?,
        };
        // One folder each: two models may have files of one name.
        let own = folder.path().join(self.origins.len().to_string());
        self.folder = Some(folder);
        fs::create_dir(&own).map_err(ErrorReport::of_file("cannot create", &own))?;
        let mut first = None;
        for head in &model.heads {
            let name = head.origin.address.rsplit('/').next().unwrap_or_default();
            let path =
                own.join(percent_encoding::percent_decode_str(name).decode_utf8_lossy().replace('/', "_"));
            head.write_hollow(&path).map_err(ErrorReport::of_file("cannot write", &path))?;
            first.get_or_insert(path);
            self.origins.push(head.origin.clone());
        }
        Ok(first.unwrap_or_default().to_string_lossy().into_owned())
    }

    /// The flags with files of this machine in place of names on servers.
    pub(super) fn local(&self, given: &Options) -> Result<Options, ErrorReport> {
        if self.words.is_empty() {
            return Ok(given.clone());
        }
        let mut kept: Vec<Setting> = Vec::new();
        for setting in given.settings() {
            match setting.flag.stands_for {
                // A bundle names a repository and sets other flags besides.
                Some(words) => {
                    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
                    kept.extend(Options::from_argv(&words)?.settings().iter().cloned());
                }
                None => kept.push(setting.clone()),
            }
        }
        let files = Options::from_argv(&self.words)?;
        let is_remote = |setting: &Setting| {
            matches!(setting.flag.effect, FlagClass::Remote | FlagClass::DraftRemote)
                || ["--hf-file", "--mmproj-url"].contains(&setting.flag.name())
                || files.settings().iter().any(|file| file.flag == setting.flag)
        };
        kept.retain(|setting| !is_remote(setting));
        Ok(kept.into_iter().chain(files.settings().iter().cloned()).collect())
    }

    /// The plan with the origins of its fetched headers.
    pub(super) fn with(&self, plan: &Plan) -> Result<Value, ErrorReport> {
        let mut value = serde_json::to_value(plan)?;
        if !self.origins.is_empty() {
            value["fetched"] = json!(self.origins);
        }
        Ok(value)
    }

    /// Prints what was fetched.
    pub(super) fn notify(&self) -> Result<(), ErrorReport> {
        let mut stderr = terminal::stderr();
        let (bytes, requests) = self
            .origins
            .iter()
            .fold((0, 0), |(bytes, count), one| (bytes + one.fetched, count + one.requests));
        if let Some(first) = self.origins.first() {
            let digest =
                first.sha256.as_ref().map_or_else(String::new, |digest| format!(", sha256 {digest}"));
            let more = match self.origins.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            let bytes = Bytes::new(bytes);
            writeln!(
                stderr,
                "fetched the header of {}{more}{digest}: {bytes} in {}",
                first.address,
                counted(requests, "request")
            )?;
        }
        if self.others > 0 {
            writeln!(
                stderr,
                "hint: --quants compares all {} quantisations in this repository",
                self.others + 1
            )?;
        }
        Ok(())
    }
}
