use plimsoll_flags::{Options, ProgramKind};
use plimsoll_model::{Dialect, Model, gguf::Header, tiny::TinyModel};
use plimsoll_planner::{EngineBuild, PlanRequest, plan};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = TinyModel::default().file();
    let model = Model::from_headers(&[Header::read(&file, file.len() as u64, Dialect::Ggml)?])?;
    let wish = Options::from_argv(&["-c".into(), "8192".into()])?.wish(ProgramKind::LlamaServer)?;
    let cards: [plimsoll_base::Card; 1] = ["name=H200,total=143771MiB,free=140000MiB,cc=9.0".parse()?];
    let (engine, program, contexts) = (EngineBuild::LLAMA_CPP, ProgramKind::LlamaServer, &[]);
    let (draft, projector, processor) = (None, None, None);
    let plan = plan(&PlanRequest { model: &model, draft, projector, wish: &wish, engine, program, cards: &cards, contexts, processor })?;
    println!("{}: {} on {}", plan.model, plan.cards[0].peak, plan.cards[0].id);
    Ok(())
}
