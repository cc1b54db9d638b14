//! Finds the remote model that llama-server's flags name: its cached files, or else its headers on the
//! server.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::thread;

use plimsoll_flags::{ModelParams, RemoteSource};
use plimsoll_model::gguf::{FIRST, GgufError, Header};
use plimsoll_model::repository::{self, Quantisation};
use plimsoll_model::split::siblings;
use plimsoll_model::{Dialect, Model, ModelError};

use crate::address::{Address, printable};
use crate::cached::{CachedFiles, Caches};
use crate::client::{Bounds, Client, Traffic};
use crate::error::{HubError, HubFailure};
use crate::head::{Allowance, Origin, RemoteHead, Wanted};
use crate::listing::Listing;

/// The hub where no other is named.
const HUB: &str = "https://huggingface.co";
/// Headers of a set that are fetched at once.
const AT_ONCE: usize = 8;
/// Bytes of a later file's header besides its list of tensors.
const ALONGSIDE_LIST: u64 = 384;

/// A hub, and the caches of its downloads.
#[derive(Debug)]
pub struct Hub {
    pub(crate) client: Client,
    caches: Caches,
}

/// Models that flags name on servers; `None` where they name none there.
#[derive(Debug, Default)]
pub struct LocatedModel {
    pub main: Option<ModelPlace>,
    pub draft: Option<ModelPlace>,
    pub projector: Option<ModelPlace>,
    /// The other quantisations of the main model's repository, where its list was fetched.
    pub others: usize,
}

/// Where a model's headers are.
#[derive(Debug)]
pub enum ModelPlace {
    /// The first file of a model on this machine.
    File(PathBuf),
    Remote(RemoteModel),
}

/// Model on a server: the headers of all its files.
#[derive(Debug)]
pub struct RemoteModel {
    /// Its name, for people.
    pub name: String,
    pub heads: Vec<RemoteHead>,
}

impl RemoteModel {
    pub fn model(&self) -> Result<Model, HubError> {
        let of = |failure: HubFailure| failure.of(&self.name);
        let headers: Result<Vec<Header<'_>>, GgufError> = self.heads.iter().map(RemoteHead::header).collect();
        let headers = headers.map_err(|error| of(error.into()))?;
        Model::from_headers(&headers).map_err(|error: ModelError| of(error.into()))
    }

    pub fn origins(&self) -> impl Iterator<Item = &Origin> {
        self.heads.iter().map(|head| &head.origin)
    }
}

impl Hub {
    /// The hub and the caches that this process's environment names; `token` comes before `HF_TOKEN`.
    pub fn of_environment(token: Option<&str>, bounds: Bounds) -> Result<Self, HubError> {
        Self::of_variables(|name| env::var_os(name), token, bounds)
    }

    /// The same of another environment, as an engine will have.
    pub fn of_variables(
        variable: impl Fn(&str) -> Option<OsString>,
        token: Option<&str>,
        bounds: Bounds,
    ) -> Result<Self, HubError> {
        let text = |name: &str| variable(name)?.into_string().ok().filter(|text| !text.is_empty());
        // `common/common.cpp: common_get_model_endpoint @ 0.5.0`.
        let endpoint = text("MODEL_ENDPOINT").or_else(|| text("HF_ENDPOINT"));
        let hub = Address::parse(endpoint.as_deref().unwrap_or(HUB))?;
        let token = token.map(str::to_owned).or_else(|| text("HF_TOKEN"));
        Ok(Self {
            client: Client::new(hub, token.as_deref(), bounds)?,
            caches: Caches::of_environment(variable),
        })
    }

    pub fn new(client: Client, caches: Caches) -> Self {
        Self { client, caches }
    }

    /// The hub's address.
    pub fn address(&self) -> &Address {
        self.client.hub()
    }

    pub fn traffic(&self) -> Traffic {
        self.client.traffic()
    }

    /// The models that the flags name on servers, each where no file of it is named.
    pub fn locate(&self, params: &ModelParams, dialect: Dialect) -> Result<LocatedModel, HubError> {
        let [main, draft, projector] = params.remote_sources();
        let mut found = match main {
            Some(source) => self.model(source, (params, params.remote_file.as_deref()), dialect)?,
            None => LocatedModel::default(),
        };
        let one = |source: &RemoteSource| Ok(self.model(source, (params, None), dialect)?.main);
        if let Some(source) = draft {
            found.draft = one(source)?;
        }
        if let Some(source) = projector {
            found.projector = one(source)?;
        }
        Ok(found)
    }

    /// A model and, for the main one, the projector of its repository.
    fn model(
        &self,
        source: &RemoteSource,
        (params, file): (&ModelParams, Option<&str>),
        dialect: Dialect,
    ) -> Result<LocatedModel, HubError> {
        let named = match source {
            RemoteSource::Docker(name) => return Err(HubFailure::Docker.of(printable(name))),
            RemoteSource::Address(text) if params.offline => {
                return Err(HubFailure::Offline.of(printable(text)));
            }
            RemoteSource::Address(text) => {
                let main = self.at(&Address::parse(text)?, dialect)?;
                return Ok(LocatedModel { main: Some(main), ..LocatedModel::default() });
            }
            RemoteSource::Hub(named) => named,
        };
        // The last of several colons, as there.
        let (repo, tag) =
            named.split_once(':').map_or((named.as_str(), None), |(repo, tag)| (repo, Some(tag)));
        let query = RepositoryQuery { repo, tag: tag.filter(|tag| !tag.is_empty()), file, dialect };
        let projects =
            params.projector_auto && params.projector.is_none() && params.projector_remote.is_none();
        let projects = projects && params.remote.as_ref() == Some(source);
        let cached = self.caches.of(repo);
        if let Some(found) = cached.iter().find_map(|files| query.cached(files, projects, true)) {
            return Ok(found);
        }
        let any = || cached.iter().find_map(|files| query.cached(files, projects, false));
        if params.offline {
            return any().ok_or_else(|| HubFailure::Offline.of(printable(named)));
        }
        match self.fetch(&query, projects) {
            // As llama-server does without a network: what there is of the repository.
            Err(error) if error.failure.is_passing() => any().ok_or(error),
            fetched => fetched,
        }
    }

    fn fetch(&self, query: &RepositoryQuery<'_>, projects: bool) -> Result<LocatedModel, HubError> {
        let listing = Listing::fetch(&self.client, query.repo)?;
        let paths = listing.paths();
        let files = match query.file {
            Some(file) => repository::named(&paths, file),
            None => repository::model(&paths, query.tag),
        };
        let files = files.map_err(|error| HubFailure::from(error).of(query.repo))?;
        let own = files.first().and_then(|first| repository::projector(&paths, first)).filter(|_| projects);
        let main = self.listed(&listing, &files, query.dialect, &[])?;
        let own =
            own.map(|path| self.listed(&listing, &[path.to_owned()], query.dialect, &[])).transpose()?;
        Ok(LocatedModel {
            main: Some(ModelPlace::Remote(main)),
            projector: own.map(ModelPlace::Remote),
            draft: None,
            others: listing.quantisations().len().saturating_sub(1),
        })
    }

    /// The list of a repository's files.
    pub fn listing(&self, repo: &str) -> Result<Listing, HubError> {
        Listing::fetch(&self.client, repo)
    }

    /// Headers of the quantisations of a repository, one after the other. Their vocabulary is fetched once.
    pub fn each_quantisation(
        &self,
        listing: &Listing,
        dialect: Dialect,
        mut take: impl FnMut(Quantisation, Result<RemoteModel, HubError>),
    ) {
        let mut vocabulary = Vec::new();
        for quantisation in listing.quantisations() {
            let fetched = self.listed(listing, &quantisation.files, dialect, &vocabulary);
            if let Ok(RemoteModel { heads, .. }) = &fetched
                && vocabulary.is_empty()
            {
                vocabulary = heads.first().map_or_else(Vec::new, |head| head.vocabulary().to_vec());
            }
            take(quantisation, fetched);
        }
    }

    /// The projector of a listed model.
    pub fn projector(
        &self,
        listing: &Listing,
        quantisation: &Quantisation,
        dialect: Dialect,
    ) -> Result<Option<RemoteModel>, HubError> {
        let paths = listing.paths();
        let path = quantisation.files.first().and_then(|first| repository::projector(&paths, first));
        path.map(|path| self.listed(listing, &[path.to_owned()], dialect, &[])).transpose()
    }

    pub(crate) fn listed(
        &self,
        listing: &Listing,
        files: &[String],
        dialect: Dialect,
        vocabulary: &[plimsoll_model::gguf::PassedArray],
    ) -> Result<RemoteModel, HubError> {
        let wanted = files.iter().map(|path| {
            let file = listing.file(path);
            Wanted {
                address: listing.address(&self.client, path),
                size: file.and_then(|file| file.size),
                digest: file.and_then(|file| file.digest.clone()),
                first: FIRST,
                dialect,
                vocabulary,
            }
        });
        let heads = self.heads(wanted.collect())?;
        let first = files.first().map(String::as_str).unwrap_or_default();
        Ok(RemoteModel { name: format!("{}/{first}", listing.repo), heads })
    }

    /// A model by its plain address, with the other files of its set.
    pub(crate) fn at(&self, address: &Address, dialect: Dialect) -> Result<ModelPlace, HubError> {
        let addresses = siblings(address.path()).into_iter().map(|path| address.with_path(&path));
        let wanted = addresses.map(|address| Wanted {
            address,
            size: None,
            digest: None,
            first: FIRST,
            dialect,
            vocabulary: &[],
        });
        let heads = self.heads(wanted.collect())?;
        Ok(ModelPlace::Remote(RemoteModel { name: address.to_string(), heads }))
    }

    /// The headers of a set: the first, which says how long the others may be, then those.
    fn heads(&self, wanted: Vec<Wanted<'_>>) -> Result<Vec<RemoteHead>, HubError> {
        let Some((first, others)) = wanted.split_first() else { return Ok(Vec::new()) };
        let allowance = &Allowance::of(self.client.bounds.header);
        let mut heads = vec![RemoteHead::fetch(&self.client, first, allowance)?];
        let each = expected(heads.first(), others.len());
        for some in others.chunks(AT_ONCE) {
            let fetched: Vec<Result<RemoteHead, HubError>> = thread::scope(|scope| {
                let sized = some.iter().map(|wanted| Wanted { first: each, ..wanted.clone() });
                let fetch = |wanted| scope.spawn(move || RemoteHead::fetch(&self.client, &wanted, allowance));
                let threads: Vec<_> = sized.map(fetch).collect();
                let broken = |_| {
                    Err(HubFailure::Broken("the thread that read it has ended".to_owned()).of(&first.address))
                };
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(broken)).collect()
            });
            heads.extend(fetched.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        Ok(heads)
    }
}

/// Bytes of the header of each other file of a set, as the first file states them.
fn expected(first: Option<&RemoteHead>, others: usize) -> u64 {
    let of = |head: &RemoteHead| {
        let header = head.header().ok()?;
        let own = u64::try_from(header.tensors.len()).ok().filter(|own| *own > 0)?;
        let all = u64::from(header.u32("split.tensors.count").ok()??);
        let listed = header.tensor_list.end - header.tensor_list.start;
        let each = all.saturating_sub(own).checked_div(u64::try_from(others).ok()?)?;
        Some(each.saturating_mul(listed.div_ceil(own)).saturating_add(ALONGSIDE_LIST))
    };
    first.and_then(of).unwrap_or(FIRST).min(FIRST)
}

/// Model of a repository, as flags name it.
#[derive(Clone, Copy, Debug)]
struct RepositoryQuery<'a> {
    repo: &'a str,
    tag: Option<&'a str>,
    file: Option<&'a str>,
    dialect: Dialect,
}

impl RepositoryQuery<'_> {
    /// The model among downloaded files; with `sure` only one that the hub's list would not replace.
    fn cached(&self, files: &CachedFiles, projects: bool, sure: bool) -> Option<LocatedModel> {
        let paths = files.list();
        let chosen = match self.file {
            Some(file) => repository::named(&paths, file).ok(),
            None if sure => repository::usual(&paths, self.tag),
            None => repository::model(&paths, self.tag).ok(),
        };
        let first = chosen?.into_iter().next()?;
        let own = repository::projector(&paths, &first).filter(|_| projects);
        let own = own.and_then(|path| files.file(path)).map(ModelPlace::File);
        let main = Some(ModelPlace::File(files.file(&first)?));
        Some(LocatedModel { main, projector: own, ..LocatedModel::default() })
    }
}
