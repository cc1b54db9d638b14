//! Tests of synthetic models that are written to files, sparse or split over several.

use std::fs::File;
use std::io::Read;
#[cfg(unix)]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use plimsoll_model::gguf::Header;
use plimsoll_model::{Dialect, Model, split};
use plimsoll_specimens::{Changes, write};

fn read(paths: &[String]) -> Model {
    let files: Vec<(Vec<u8>, u64)> =
        paths.iter().map(|path| (head(path), std::fs::metadata(path).unwrap().len())).collect();
    let headers: Vec<Header<'_>> =
        files.iter().map(|(head, length)| Header::read(head, *length, Dialect::Ggml).unwrap()).collect();
    Model::from_headers(&headers).unwrap()
}

fn head(path: &str) -> Vec<u8> {
    let mut head = Vec::new();
    File::open(path).unwrap().take(16 << 20).read_to_end(&mut head).unwrap();
    head
}

#[cfg(unix)]
#[test]
fn a_large_model_takes_no_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("70b.gguf");
    write("llama-70b", &path, &Changes::default()).unwrap();
    let metadata = path.metadata().unwrap();
    assert!(metadata.len() > 39 << 30, "{}", metadata.len());
    assert!(metadata.blocks() * 512 < 16 << 20, "{}", metadata.blocks());
    assert_eq!(read(&[path.to_str().unwrap().to_owned()]).hyper.layers, 80);
}

#[test]
fn a_set_of_files_reads_as_one_model() {
    let folder = tempfile::tempdir().unwrap();
    let changes = Changes { shards: 6, vocabulary: Some(1000), context: Some(8192), ..Changes::default() };
    write("kimi-k2", &folder.path().join("k.gguf"), &changes).unwrap();
    let first = folder.path().join("k-00001-of-00006.gguf");
    let model = read(&split::siblings(first.to_str().unwrap()));
    assert_eq!((model.hyper.vocabulary, model.hyper.context_train), (1000, 8192));
    assert_eq!(model.tensors.last().unwrap().file, 5);
}

#[test]
fn experts_are_as_many_as_asked_for_but_never_fewer_than_are_used() {
    let folder = tempfile::tempdir().unwrap();
    let created = |shape: &str, experts: u32| {
        let path = folder.path().join(experts.to_string());
        let changes =
            Changes { layers: Some(2), vocabulary: Some(1000), experts: Some(experts), ..Changes::default() };
        write(shape, &path, &changes).unwrap();
        let model = read(&[path.to_str().unwrap().to_owned()]);
        let gate = model.tensors.iter().find(|tensor| tensor.name == "blk.1.ffn_gate_exps.weight");
        gate.map(|tensor| tensor.shape[2])
    };
    assert_eq!(created("kimi-k2", 32), Some(32));
    assert_eq!(created("kimi-k2", 2), Some(8));
    assert_eq!(created("m8", 64), None);
}

#[test]
fn tiny_models_have_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.gguf");
    let changes = Changes { layers: Some(1), ..Changes::default() };
    write("tiny", &path, &changes).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    assert!(bytes.len() > 500_000 && zeros < bytes.len() / 2, "{zeros} of {}", bytes.len());
}

#[test]
fn a_set_needs_a_name_that_ends_in_gguf() {
    let changes = Changes { shards: 2, ..Changes::default() };
    let error = write("tiny", Path::new("/nowhere/model.bin"), &changes).unwrap_err();
    assert!(error.to_string().contains("end it with .gguf"), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let path = Path::new("/nowhere/at/all.gguf");
    let error = write("tiny", path, &Changes::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot create `/nowhere/at/all.gguf`"), "{error}");
}
