//! Describes the operations that this server answers itself, for its OpenAPI document.

use super::ollama;
use super::operation::{
    Content, EVENTS, LLAMA_SERVER, LLAMA_SWAP, LM_STUDIO, NAME_REFUSALS, OPENAI, Operation, PLIMSOLL, TEXT,
    about_model, json, shows, text,
};
use crate::api::Own;
use crate::page::PageFile;

const HTML: Content = text("text/html");
const SCRIPT: Content = text("text/javascript");
const ICON: Content = text("image/svg+xml");

pub(super) const fn operation(own: Own) -> Operation {
    match own {
        Own::Root => {
            shows(PLIMSOLL, "Answers as Ollama does, and a browser with the page", TEXT).or_shows(HTML)
        }
        Own::Index => shows(PLIMSOLL, "Lists this server's own paths", TEXT),
        Own::OpenApi => shows(PLIMSOLL, "Describes the API", json("Object")),
        Own::Page(PageFile::Document) => shows(PLIMSOLL, "Shows the page", HTML),
        Own::Page(PageFile::Script) => shows(PLIMSOLL, "Returns the script of the page", SCRIPT),
        Own::Page(PageFile::Icon) => shows(PLIMSOLL, "Returns the icon of the page", ICON),
        Own::Health => shows(PLIMSOLL, "Says that the server runs", json("Health")),
        Own::Version => shows(PLIMSOLL, "Returns the version of the server", json("Version")),
        Own::Props => shows(LLAMA_SERVER, "Shows the properties of the router or of a model", json("Object")),
        Own::Models => {
            shows(OPENAI, "Lists the models", json("ModelList")).query(&["reload"]).refuses(&[400])
        }
        Own::Model => shows(OPENAI, "Describes a model", json("Model")).refuses(NAME_REFUSALS),
        Own::Download => shows(LLAMA_SERVER, "Begins the download of a model", json("Begun"))
            .takes("DownloadOrder")
            .refuses(&[429, 500, 501]),
        Own::Remove => shows(LLAMA_SERVER, "Removes a model, or cancels its download", json("Success"))
            .query(&["of"])
            .refuses(&[400, 404, 500, 501]),
        Own::Load => about_model(LLAMA_SERVER, "Loads a model"),
        Own::Unload => about_model(LLAMA_SERVER, "Unloads a model"),
        Own::ModelEvents => shows(LLAMA_SERVER, "Follows the states of models", EVENTS),
        Own::Pin => about_model(PLIMSOLL, "Keeps a model loaded").query(&["for"]),
        Own::Unpin => about_model(PLIMSOLL, "Ends the pin of a model"),
        Own::Running => shows(LLAMA_SWAP, "Lists the loaded models", json("RunningList")),
        Own::UnloadAll => shows(LLAMA_SWAP, "Unloads all models, or the one named", TEXT)
            .or_shows(json("Success"))
            .query(&["model"])
            .refuses(&[400, 404, 408, 413, 500]),
        Own::UnloadNamed => shows(LLAMA_SWAP, "Unloads a model", json("Success")).refuses(&[400, 404, 500]),
        Own::Logs => shows(LLAMA_SWAP, "Shows the last lines of the engines", TEXT)
            .query(&["model"])
            .refuses(NAME_REFUSALS),
        Own::LogStream => shows(LLAMA_SWAP, "Follows the lines of the engines", TEXT)
            .query(&["no-history"])
            .refuses(NAME_REFUSALS),
        Own::Metrics => shows(PLIMSOLL, "Shows the metrics for Prometheus", TEXT),
        Own::Status => shows(PLIMSOLL, "Shows the status document", json("Status")),
        Own::StatusStream => shows(PLIMSOLL, "Follows the status document", EVENTS),
        Own::Memory => shows(PLIMSOLL, "Shows the memory of each device by model", json("Object")),
        Own::Failures => shows(PLIMSOLL, "Lists the last failures of models", json("FailureList")),
        Own::Yields => shows(PLIMSOLL, "Lists the memory that is kept free", json("YieldList")),
        Own::Yield => shows(PLIMSOLL, "Keeps memory free for other programs", json("YieldList"))
            .takes("YieldOrder")
            .refuses(&[404]),
        Own::EndYield => shows(PLIMSOLL, "Lets models use the kept memory again", json("YieldList"))
            .query(&["card"])
            .refuses(&[404]),
        Own::WhatIf => {
            shows(PLIMSOLL, "Shows what a load or a yield would do, without doing it", json("WhatIf"))
                .query(&["model", "context", "slots", "cache", "yield", "card"])
                .refuses(&[400, 404, 500])
        }
        Own::Flags => shows(PLIMSOLL, "Shows the flags of a model in the configuration", json("Flags"))
            .query(&["of"])
            .refuses(&[400, 404, 409, 500]),
        Own::PlanFlags => {
            shows(PLIMSOLL, "Plans a model with other flags, without a change to anything", json("WhatIf"))
                .takes("FlagsOrder")
                .refuses(&[404, 409, 500])
        }
        Own::SaveFlags => {
            shows(PLIMSOLL, "Saves the flags of a model in the configuration", json("FlagsSaved"))
                .takes("SaveFlagsOrder")
                .refuses(&[404, 409, 500])
        }
        Own::UndoFlags => shows(
            PLIMSOLL,
            "Writes the configuration before the last change of flags again",
            json("FlagsSaved"),
        )
        .takes("UndoFlagsOrder")
        .refuses(&[409, 500]),
        Own::Reload => shows(PLIMSOLL, "Reads the configuration again", json("Reloaded")).refuses(&[400]),
        Own::LmStudioModels => shows(LM_STUDIO, "Lists the models", json("List")),
        Own::LmStudioModel => shows(LM_STUDIO, "Describes a model", json("Object")).refuses(NAME_REFUSALS),
        Own::Ollama(endpoint) => ollama::of_store(endpoint),
    }
}
