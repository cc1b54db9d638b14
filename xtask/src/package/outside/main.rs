//! Test program for the packaged crates: it plans the model whose file is named, or a tiny one.

use plimsoll_model::{Dialect, Model, gguf::Header, tiny::TinyModel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).map(std::fs::read).unwrap_or(Ok(TinyModel::default().file()))?;
    let header = Header::read(&file, file.len() as u64, Dialect::Ggml)?;
    let cards = ["name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse()?];
    let plan = plimsoll_plan::plan(Model::from_headers(&[header])?, "-c 8192", &cards)?;
    println!("{}: {} of {} on {}", plan.model, plan.cards[0].peak, plan.cards[0].free, plan.cards[0].id);
    Ok(())
}
