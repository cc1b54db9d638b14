//! Tests of header fetches from a fake hub: the number of requests and bytes, and the result of every server
//! fault.

use std::time::{Duration, Instant};

use fake_hub::{FakeHub, Fault, HostedFile};
use plimsoll_base::Bytes;
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_hub::{
    Address, Bounds, Caches, Client, Hub, HubError, HubFailure, LocatedModel, ModelPlace, RemoteModel,
};
use plimsoll_model::gguf::{Datum, DraftHeader, Header, ValueType};
use plimsoll_model::{Dialect, Model};

const REPO: &str = "user/model-GGUF";
const BOUNDS: Bounds =
    Bounds { patience: Duration::from_secs(20), header: Bytes::mib(32), public_only: false };

fn hub(server: &FakeHub, token: Option<&str>, bounds: Bounds) -> Hub {
    let address = Address::parse(&server.address).unwrap();
    Hub::new(Client::new(address, token, bounds).unwrap(), Caches::default())
}

fn located(hub: &Hub, flags: &str) -> Result<LocatedModel, HubError> {
    let words: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    let params = Options::from_argv(&words).unwrap().params(ProgramKind::LlamaServer).unwrap();
    hub.locate(&params, Dialect::Ggml)
}

fn remote(place: Option<ModelPlace>) -> RemoteModel {
    match place.unwrap() {
        ModelPlace::Remote(model) => model,
        ModelPlace::File(path) => panic!("{}", path.display()),
    }
}

fn specimen(name: &str) -> DraftHeader {
    plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0))
}

/// A header of a few hundred KiB, which takes more than one request and little time to make.
fn small() -> DraftHeader {
    let mut recipe = plimsoll_specimens::shape("l8").unwrap();
    recipe.vocabulary = 12_000;
    recipe.files(1).remove(0)
}

/// The model as it is read from whole headers.
fn direct(drafts: &[DraftHeader]) -> Model {
    let heads: Vec<(Vec<u8>, u64)> =
        drafts.iter().map(|draft| (draft.header(), draft.data_length().get())).collect();
    let headers =
        heads.iter().map(|(head, data)| Header::read(head, head.len() as u64 + data, Dialect::Ggml).unwrap());
    let headers: Vec<Header<'_>> = headers.collect();
    Model::from_headers(&headers).unwrap()
}

#[test]
fn a_70b_in_eight_files_costs_its_headers_and_no_more_than_one_percent() {
    let drafts = plimsoll_specimens::shape("llama-70b").unwrap().files(8);
    let name = |number: usize| format!("Q4_K_M/m-Q4_K_M-{number:05}-of-00008.gguf");
    let names: Vec<String> = (1..=8).map(name).collect();
    let files = names.iter().zip(&drafts).map(|(name, draft)| (REPO, name.as_str(), HostedFile::of(draft)));
    let server = FakeHub::start(files.collect()).unwrap();
    let hub = hub(&server, None, BOUNDS);
    let found = located(&hub, &format!("-hf {REPO}")).unwrap();
    let main = remote(found.main);
    assert_eq!(main.model().unwrap(), direct(&drafts));
    let headers: u64 = drafts.iter().map(|draft| draft.header().len() as u64).sum();
    let (bytes, ranges) = server.requested();
    println!("headers {headers} B, asked {bytes} B in {ranges} ranges");
    for origin in main.origins() {
        println!("{} {} B, {} requests", origin.address, origin.fetched, origin.requests);
        assert!(origin.requests <= 3);
    }
    assert!(bytes * 100 <= headers * 101, "{bytes} of {headers}");
    assert_eq!(main.heads[0].origin.sha256.as_deref(), Some("ab".repeat(32).as_str()));
    assert_eq!(main.heads[0].origin.etag.as_deref(), Some("\"0\""));
}

/// A vocabulary like that of Llama 3: 128 256 words, and 280 147 merges whose words get longer.
fn merged_vocabulary() -> DraftHeader {
    let mut draft = specimen("l8");
    draft.entries.retain(|(key, _)| !key.starts_with("tokenizer."));
    let word = |number: usize| vec![b'w'; 1 + (number + 1).ilog2() as usize / 2 + number % 3];
    draft.put("tokenizer.ggml.model", "gpt2");
    draft.put("tokenizer.ggml.pre", "llama-bpe");
    draft.put("tokenizer.ggml.tokens", Datum::Texts((0..128_256).map(word).collect()));
    draft.put("tokenizer.ggml.token_type", Datum::Numbers(ValueType::I32, vec![1; 128_256]));
    let merge = |number: usize| [word(number), vec![b' '], word(number / 2)].concat();
    draft.put("tokenizer.ggml.merges", Datum::Texts((0..280_147).map(merge).collect()));
    draft.put("tokenizer.ggml.bos_token_id", 128_000_u32);
    draft.put("tokenizer.chat_template", "{{ messages }}".repeat(300).as_str());
    draft
}

#[test]
fn a_vocabulary_of_128_000_words_takes_three_requests() {
    for (name, draft) in
        [("merges", merged_vocabulary()), ("scores", specimen("l8")), ("oss", specimen("oss"))]
    {
        let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", HostedFile::of(&draft))]).unwrap();
        let main = remote(located(&hub(&server, None, BOUNDS), &format!("-hf {REPO}")).unwrap().main);
        let origin = main.heads[0].origin.clone();
        println!(
            "{name}: header {} B, {} B in {} requests",
            draft.header().len(),
            origin.fetched,
            origin.requests
        );
        assert!(origin.requests <= 3 && origin.fetched <= 12 << 20, "{origin:?}");
        assert_eq!(main.model().unwrap(), direct(&[draft]));
    }
}

#[test]
fn the_projector_comes_along_and_each_quantisation_costs_little_after_the_first() {
    let file = |name: &str| HostedFile::of(&specimen(name));
    let files = vec![
        (REPO, "m-Q4_K_M.gguf", file("l8")),
        (REPO, "m-Q8_0.gguf", file("l8")),
        (REPO, "m-UD-Q2_K.gguf", file("l8")),
        (REPO, "mmproj-F16.gguf", file("gemma3-4b-mmproj")),
    ];
    let server = FakeHub::start(files).unwrap();
    let hub = hub(&server, None, BOUNDS);
    let found = located(&hub, &format!("-hf {REPO}:q8_0")).unwrap();
    assert!(remote(found.main).name.ends_with("m-Q8_0.gguf"));
    assert!(found.projector.is_some() && found.draft.is_none());
    assert!(located(&hub, &format!("-hf {REPO} --no-mmproj")).unwrap().projector.is_none());
    let named = located(&hub, &format!("-hf {REPO} --hf-file m-UD-Q2_K.gguf")).unwrap();
    assert!(remote(named.main).name.ends_with("m-UD-Q2_K.gguf"));
    let listing = hub.listing(REPO).unwrap();
    let mut costs = Vec::new();
    hub.each_quantisation(&listing, Dialect::Ggml, |one, fetched| {
        let fetched = fetched.unwrap();
        assert_eq!(fetched.model().unwrap(), direct(&[specimen("l8")]));
        costs.push((one.name, fetched.origins().map(|origin| origin.fetched).sum::<u64>()));
    });
    println!("{costs:?}");
    assert!(costs[0].1 > 1 << 20 && costs[1..].iter().all(|(_, bytes)| *bytes < 200 << 10));
}

#[test]
fn another_vocabulary_of_the_same_size_is_read_and_not_assumed() {
    let longer = {
        let mut draft = specimen("l8");
        for (key, datum) in &mut draft.entries {
            if let ("tokenizer.ggml.tokens", Datum::Texts(words)) = (key.as_str(), &mut *datum) {
                words.iter_mut().for_each(|word| word.push(b'x'));
            }
        }
        draft
    };
    let files = vec![
        (REPO, "m-Q4_K_M.gguf", HostedFile::of(&specimen("l8"))),
        (REPO, "m-Q8_0.gguf", HostedFile::of(&longer)),
    ];
    let server = FakeHub::start(files).unwrap();
    let hub = hub(&server, None, BOUNDS);
    let mut models = Vec::new();
    hub.each_quantisation(&hub.listing(REPO).unwrap(), Dialect::Ggml, |_, fetched| {
        models.push(fetched.unwrap().model().unwrap());
    });
    assert_eq!(models, [direct(&[specimen("l8")]), direct(&[longer])]);
}

#[test]
fn a_token_goes_to_the_hub_and_nowhere_else() {
    let file = HostedFile::of(&small()).with(Fault::Gated);
    let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
    let refused = located(&hub(&server, None, BOUNDS), &format!("-hf {REPO}")).unwrap_err();
    assert!(refused.to_string().contains("HF_TOKEN"), "{refused}");
    located(&hub(&server, Some("hf_secret"), BOUNDS), &format!("-hf {REPO}")).unwrap();
    let requests = server.requests();
    let with = |elsewhere: bool| {
        let there = requests.iter().filter(move |request| request.elsewhere == elsewhere);
        there.filter(|request| request.authorization.is_some()).count()
    };
    assert!(with(false) >= 3, "{requests:?}");
    assert_eq!(with(true), 0, "{requests:?}");
    let url = format!("-mu {}/{REPO}/resolve/{}/m-Q4_K_M.gguf", server.address, fake_hub::COMMIT);
    let elsewhere = FakeHub::start(Vec::new()).unwrap();
    assert!(located(&hub(&elsewhere, Some("hf_secret"), BOUNDS), &url).is_err());
    assert_eq!(
        server.requests().iter().filter(|request| request.authorization.is_some()).count(),
        with(false)
    );
}

#[test]
fn a_token_is_not_sent_over_plain_http_to_another_machine() {
    let file = HostedFile::of(&small()).with(Fault::Gated);
    let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
    // It leads here, but it is no address of the loopback.
    let elsewhere = server.address.replace("127.0.0.1", "0.0.0.0");
    let client = Client::new(Address::parse(&elsewhere).unwrap(), Some("hf_secret"), BOUNDS).unwrap();
    let hub = Hub::new(client, Caches::default());
    let refused = located(&hub, &format!("-hf {REPO}")).unwrap_err().to_string();
    assert!(refused.contains("is not sent over plain http"), "{refused}");
    assert!(server.requests().iter().all(|request| request.authorization.is_none()));
    assert!(!server.requests().is_empty(), "what needs no token is asked for all the same");
}

#[test]
fn a_client_that_may_ask_the_public_network_alone_learns_nothing_of_this_machine() {
    let bounds = Bounds { public_only: true, ..BOUNDS };
    let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", HostedFile::of(&small()))]).unwrap();
    let elsewhere = Address::parse("https://hub.example").unwrap();
    let client = Hub::new(Client::new(elsewhere, None, bounds).unwrap(), Caches::default());
    let there = server.plain(REPO, "m-Q4_K_M.gguf");
    let missing = there.replace("m-Q4", "n-Q4");
    let named = there.replace("127.0.0.1", "localhost");
    let closed = "http://127.0.0.1:9/m.gguf".to_owned();
    let mapped = there.replace("127.0.0.1", "[::ffff:127.0.0.1]");
    for address in [there, missing, named, closed, mapped] {
        let refused = client.plan_download(&address, Dialect::Ggml).unwrap_err();
        assert!(matches!(refused.failure, HubFailure::NotPublic), "{address}: {refused}");
    }
    assert!(server.requests().is_empty(), "a refusal tells a server from none");
    // The operator chose the hub, and no redirect of it leads into this machine.
    let refused = located(&hub(&server, None, bounds), &format!("-hf {REPO}")).unwrap_err();
    assert!(matches!(refused.failure, HubFailure::NotPublic), "{refused}");
    assert!(server.requests().iter().all(|request| !request.elsewhere), "{:?}", server.requests());
}

#[test]
fn every_fault_of_a_server_is_an_error_that_names_the_file_and_a_remedy() {
    let short = Bounds { patience: Duration::from_millis(600), ..BOUNDS };
    for (fault, stated) in [
        (Fault::Status(401), "HF_TOKEN"),
        (Fault::Status(403), "HF_TOKEN"),
        (Fault::Status(404), "check the name"),
        (Fault::Status(429), "accepts requests again in 17 s"),
        (Fault::Status(500), "status 500"),
        (Fault::Loop, "redirects more than 5 times"),
        (Fault::BadRedirect, "redirects to `ftp://127.0.0.1/x`"),
        (Fault::IgnoresRanges, "does not support range requests"),
        (Fault::Slow, "no answer within 0.6 s"),
        (Fault::Truncates, "ended early"),
        (Fault::Hangs, "hint: "),
        (Fault::Noise, "hint: "),
        (Fault::OtherRange, "a different part of the file"),
        (Fault::Changes, "changed on the server"),
        (Fault::Length(1 << 40), "in the hub's list of files"),
        (Fault::Length(70_000), "in the hub's list of files"),
    ] {
        let file = HostedFile::of(&small()).with(fault);
        let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
        let before = Instant::now();
        let bounds = if matches!(fault, Fault::Slow | Fault::Hangs) { short } else { BOUNDS };
        let error = located(&hub(&server, None, bounds), &format!("-hf {REPO}")).unwrap_err().to_string();
        assert!(error.contains("m-Q4_K_M.gguf") && error.contains(stated), "{fault:?}: {error}");
        assert!(before.elapsed() < Duration::from_secs(5), "{fault:?}");
    }
    // More than the range, and nothing beyond it is taken.
    let file = HostedFile::of(&small()).with(Fault::TooMuch);
    let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
    located(&hub(&server, None, BOUNDS), &format!("-hf {REPO}")).unwrap();
}

#[test]
fn every_fault_of_the_lists_names_the_repository() {
    let short = Bounds { patience: Duration::from_millis(600), ..BOUNDS };
    for fault in [
        Fault::Status(401),
        Fault::Status(429),
        Fault::Status(503),
        Fault::Truncates,
        Fault::Hangs,
        Fault::Noise,
        Fault::OtherRange,
        Fault::TooMuch,
    ] {
        let file = HostedFile::of(&small());
        let server = FakeHub::start_with(vec![(REPO, "m-Q4_K_M.gguf", file)], fault).unwrap();
        // Only a hang has to be waited for; a busy machine may take longer for each of the others.
        let bounds = if fault == Fault::Hangs { short } else { BOUNDS };
        let error = located(&hub(&server, None, bounds), &format!("-hf {REPO}")).unwrap_err().to_string();
        assert!(error.contains(REPO) && error.contains("hint: "), "{fault:?}: {error}");
    }
    let gone = Address::parse("http://127.0.0.1:9").unwrap();
    let hub = Hub::new(Client::new(gone, None, short).unwrap(), Caches::default());
    let error = located(&hub, &format!("-hf {REPO}")).unwrap_err();
    assert!(matches!(error.failure, HubFailure::Unreachable(_)) && error.failure.is_passing(), "{error}");
}

#[test]
fn a_header_that_claims_ten_gigabytes_is_refused_after_a_few_requests() {
    let words = {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", "llama");
        draft.put("tokenizer.ggml.tokens", Datum::Texts(vec![vec![b'w'; 3]; 20_000]));
        draft.header()
    };
    let at = words.windows(6).position(|window| window == b"tokens").unwrap() + 6 + 4 + 4;
    let mut many = words.clone();
    many[at..at + 8].copy_from_slice(&900_000_000_u64.to_le_bytes());
    let mut long = words;
    long[at + 8..at + 16].copy_from_slice(&1_000_000_000_u64.to_le_bytes());
    let numbers = {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", "llama");
        draft.put("other.numbers", Datum::Numbers(ValueType::F64, vec![0; 9]));
        let mut head = draft.header();
        let end = head.len() - 9 * 8;
        head[end - 8..end].copy_from_slice(&1_000_000_000_u64.to_le_bytes());
        head
    };
    for head in [many, long, numbers] {
        let file = HostedFile { head: head.into(), length: 20 << 30, ..HostedFile::default() };
        let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
        let error = located(&hub(&server, None, BOUNDS), &format!("-hf {REPO}")).unwrap_err().to_string();
        assert!(error.contains("m-Q4_K_M.gguf"), "{error}");
        assert!(
            error.contains("32 MiB") && error.contains("--header-limit") || error.contains("no model needs"),
            "{error}"
        );
        let (bytes, ranges) = server.requested();
        assert!(bytes <= 33 << 20 && ranges <= 16, "{bytes} in {ranges}");
    }
}

/// A header of three requests that the server answers without an ETag.
#[test]
fn a_header_without_a_validator_is_of_one_answer() {
    let file = HostedFile::of(&small()).with(Fault::Untagged);
    let server = FakeHub::start(vec![(REPO, "m-Q4_K_M.gguf", file)]).unwrap();
    let hub = hub(&server, None, BOUNDS);
    let found = located(&hub, &format!("-mu {}", server.plain(REPO, "m-Q4_K_M.gguf"))).unwrap();
    let origin = remote(found.main).heads[0].origin.clone();
    assert!(origin.requests > 1 && origin.etag.is_none(), "{origin:?}");
    let ranges: Vec<(u64, u64)> = server.requests().iter().filter_map(|request| request.range).collect();
    assert!(ranges.iter().all(|(from, _)| *from == 0), "{ranges:?}");
}

#[test]
fn headers_of_a_set_are_bounded_together_and_in_number() {
    // Each file lists a few tensors of its own and a text of a MiB.
    let draft = |number: u16| {
        let mut draft = DraftHeader::default();
        draft.put("general.architecture", "llama");
        draft.put("other.text", "x".repeat(1 << 20).as_str());
        draft.put("split.no", number);
        draft.put("split.count", 40_u16);
        draft
    };
    let name = |number: u16, count: u32| format!("m-Q4_K_M-{:05}-of-{count:05}.gguf", number + 1);
    let files: Vec<(String, HostedFile)> =
        (0..40).map(|number| (name(number, 40), HostedFile::of(&draft(number)))).collect();
    let hosted = files.iter().map(|(name, file)| (REPO, name.as_str(), file.clone()));
    let server = FakeHub::start(hosted.collect()).unwrap();
    let bounds = Bounds { header: Bytes::mib(4), ..BOUNDS };
    let error = located(&hub(&server, None, bounds), &format!("-hf {REPO}")).unwrap_err().to_string();
    assert!(error.contains("longer than 8 MiB together") && error.contains("--header-limit"), "{error}");
    assert!(server.requested().0 <= 8 << 20, "{:?}", server.requested());
    let url = format!("-mu {}", server.plain(REPO, &name(0, 65_535)));
    let before = server.requests().len();
    assert!(located(&hub(&server, None, BOUNDS), &url).is_err());
    assert!(server.requests().len() <= before + 1, "a name claims a set that no model has");
}

#[test]
fn plain_addresses_have_sets_too_and_offline_fetches_nothing() {
    let drafts = plimsoll_specimens::shape("qwen3-4b").unwrap().files(2);
    let files = (1..).zip(&drafts).map(|(number, draft)| (format!("m-{number:05}-of-00002.gguf"), draft));
    let files: Vec<(String, &DraftHeader)> = files.collect();
    let hosted = files.iter().map(|(name, draft)| (REPO, name.as_str(), HostedFile::of(draft)));
    let server = FakeHub::start(hosted.collect()).unwrap();
    let hub = hub(&server, None, BOUNDS);
    let base = format!("{}/{REPO}/resolve/{}", server.address, fake_hub::COMMIT);
    let found = located(&hub, &format!("--model-url {base}/{}", files[0].0)).unwrap();
    assert_eq!(remote(found.main).model().unwrap(), direct(&drafts));
    let before = server.requests().len();
    for flags in
        [format!("-hf {REPO} --offline"), format!("--offline -mu {base}/x.gguf"), "-dr gemma3".to_owned()]
    {
        let error = located(&hub, &flags).unwrap_err().to_string();
        assert!(error.contains("offline") || error.contains("Docker"), "{error}");
    }
    assert_eq!(server.requests().len(), before);
    for (flags, stated) in [
        ("-hf user/none".to_owned(), "check the name"),
        ("-hf none".to_owned(), "USER/REPO"),
        ("-hf ../..".to_owned(), "USER/REPO"),
        (format!("-hf {REPO}:Q9_X"), "the repository has no file of quantisation `Q9_X`; it has m"),
        (format!("-hf {REPO} -hff no.gguf"), "the repository has no file `no.gguf`"),
        ("-mu ftp://x/y.gguf".to_owned(), "http://HOST"),
    ] {
        let error = located(&hub, &flags).unwrap_err().to_string();
        assert!(error.contains(stated), "{flags}: {error}");
    }
}

#[test]
fn the_newest_download_is_that_of_the_main_branch() {
    let folder = tempfile::tempdir().unwrap();
    let caches = Caches::of_environment(|name| (name == "HF_HUB_CACHE").then(|| folder.path().into()));
    for (repo, name) in [("user/model", "models--user--model"), ("gpt2", "models--gpt2")] {
        let repository = folder.path().join(name);
        assert_eq!(caches.newest(repo), None, "it is not there");
        std::fs::create_dir_all(repository.join("refs")).unwrap();
        std::fs::create_dir_all(repository.join("snapshots/old")).unwrap();
        std::fs::write(repository.join("refs/main"), "new\n").unwrap();
        assert_eq!(caches.newest(repo), None, "its commit is not there");
        std::fs::create_dir(repository.join("snapshots/new")).unwrap();
        assert_eq!(caches.newest(repo), Some(repository.join("snapshots/new")));
    }
    for hostile in ["../user/model", "user/../model", "/user/model", "user//model", ""] {
        assert_eq!(caches.newest(hostile), None, "{hostile}");
    }
}
