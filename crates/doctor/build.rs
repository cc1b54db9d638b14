//! Build script: compresses the classifier's table of words.

fn main() -> std::io::Result<()> {
    plimsoll_packed::pack_file("src/classifier/words.tsv")
}
