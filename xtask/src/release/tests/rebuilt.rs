//! Test of the reproducible build: two copies of the sources, at paths of different lengths, give the same
//! packages.

use super::*;

/// The sources that git tracks, as they are now.
fn copy_of_sources(to: &Path) {
    let list = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
    assert!(list.status.success());
    for name in String::from_utf8(list.stdout).unwrap().split_terminator('\0') {
        let (from, to) = (root().join(name), to.join(name));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        // A file that was deleted and not yet committed is listed.
        if from.exists() {
            fs::copy(from, to).unwrap();
        }
    }
}

/// The lines of `SHA256SUMS` of a build in a folder, which is left empty.
fn sums_of_a_build(folder: &Path, architecture: Architecture) -> String {
    let (sources, target) = (folder.join("sources"), folder.join("target"));
    copy_of_sources(&sources);
    let programs = build::programs(&sources, &target, architecture).unwrap();
    let size = fs::metadata(&programs.program).unwrap().len();
    println!("{architecture}: the program has {size} bytes");
    assert!(size <= 15 << 20, "{size} bytes are more than 15 MiB");
    let hidden = format!("{}/.", std::env::var("HOME").unwrap());
    for file in programs.libraries.iter().chain([&programs.program, &programs.abi]) {
        let bytes = fs::read(file).unwrap();
        let named = [hidden.as_str(), folder.to_str().unwrap()]
            .into_iter()
            .find(|path| bytes.windows(path.len()).any(|part| part == path.as_bytes()));
        assert_eq!(named, None, "a folder of this machine in {}", file.display());
    }
    let options = options(&folder.join("packages"), architecture);
    let sums = packages(&sources, &options, &programs, DATE).unwrap();
    fs::remove_dir_all(folder).unwrap();
    sums
}

#[test]
fn long_two_builds_on_different_paths_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let one = sums_of_a_build(&folder.path().join("a"), Architecture::Amd64);
    let other = sums_of_a_build(&folder.path().join("another/path"), Architecture::Amd64);
    println!("{one}");
    assert_eq!(one, other);
    assert_eq!(one.lines().count(), 7);
}
