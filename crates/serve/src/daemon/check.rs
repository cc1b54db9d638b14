//! Checks a configuration (`serve --check`): what `serve` would do with it, without an engine or a port.

use std::time::{Duration, Instant};

use plimsoll_base::CardKind;
use plimsoll_config::{ConfigMistakes, Configuration};
use plimsoll_flags::Warning;

use super::{DaemonError, Setup, cards, listen, sampler, settings};
use plimsoll_route::ApiKeys;

use plimsoll_runtime::{
    Config, ConfigureError, ExactAnswers, Forecast, MeasuredNeeds, Patience, StandingConflicts, Surveyor,
    TogetherForecast,
};
use plimsoll_task::DaemonFuture;

/// Time that `--check` waits for engines to report their memory, all together.
const ASK_ENGINES: Duration = Duration::from_secs(120);

/// Result of `serve --check`: what `serve` would do with a configuration.
#[derive(Debug)]
pub struct ConfigCheck {
    pub cards: Vec<plimsoll_scheduler::CardLimit>,
    pub models: Vec<Forecast>,
    /// A line on each model that was found, with the flags that were chosen for it.
    pub found: Vec<String>,
    /// Models that cannot stand together.
    pub conflicts: StandingConflicts,
    /// Those that fit at the same time.
    pub together: TogetherForecast,
    /// Settings of the file that have another effect here.
    pub warnings: Vec<Warning>,
    /// All mistakes of the file, those of single models too.
    pub mistakes: Option<ConfigMistakes>,
}

impl ConfigCheck {
    /// Reads the cards, surveys every model, and waits for the engines' reports of their memory. It starts no
    /// engine on a card and opens no port.
    pub fn of(setup: Setup) -> DaemonFuture<Result<Self, DaemonError>> {
        Box::pin(Self::read(setup))
    }

    /// The models that are found in the places of a setup, with a line on each; the file is not read.
    pub fn find(setup: Setup) -> DaemonFuture<Result<(Configuration, Vec<String>), DaemonError>> {
        Box::pin(async move {
            let mut config = Config::default().with_found(setup.places.as_ref());
            let machine = sampler(&setup.serve.cards)?.machine().await.ok_or(DaemonError::NoCard)?;
            let settings = settings(&setup, &config, &setup.serve, machine, ApiKeys::default())?.0;
            let lines = config.choose_flags(&settings.served(), plimsoll_runtime::this_host());
            Ok((config.roster, lines))
        })
    }

    async fn read(setup: Setup) -> Result<Self, DaemonError> {
        let (mut config, mistakes) =
            Config::read_with_mistakes(&setup.config, setup.places.as_ref()).map_err(ConfigureError::Read)?;
        let serve = setup.serve.clone().or(&config.roster.serve);
        let left_out = config.take_flags_left_out();
        plimsoll_route::permit(&listen(&serve), serve.open || !config.keys.is_empty())?;
        let sampler = sampler(&serve.cards)?;
        let mut machine = sampler.machine().await.ok_or(DaemonError::NoCard)?;
        // Host memory that is described is that of the machine which is planned for.
        if setup.serve.cards.iter().any(|card| card.kind == CardKind::Host) {
            machine.host = None;
        }
        // Cards of the command line may be those of another machine; those of the file will be served from.
        if setup.serve.cards.is_empty() {
            cards::warn_of_absent(&serve.cards, &machine)
        } else {
            cards::notify_of_absent(&serve.cards, &machine)
        }
        let settings = settings(&setup, &config, &serve, machine, ApiKeys::default())?.0;
        let found = config.choose_flags(&settings.served(), plimsoll_runtime::this_host());
        config.roster.resolve_cards(settings.cards());
        let mistakes = ConfigMistakes::of_all(mistakes, &config.roster.refused);
        if let (true, Some(mistakes)) = (config.roster.models.is_empty(), &mistakes) {
            let mistakes = ConfigMistakes { rest: Box::new(config.roster), ..mistakes.clone() };
            return Err(ConfigureError::Read(mistakes.into()).into());
        }
        let of_variables = config.of_variables(settings.cards());
        config.roster.warnings.extend(of_variables);
        let (entries, warnings) = (config.roster.models, config.roster.warnings);
        if entries.is_empty() {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            return Err(match setup.places {
                Some(places) => DaemonError::FindModel(places.in_words()),
                None => DaemonError::NoModel(setup.config),
            });
        }
        let limits = settings.scheduler.cards.clone();
        let answers = ExactAnswers::new(None);
        let (needs, patience) = (MeasuredNeeds::of(&settings.config), Instant::now() + ASK_ENGINES);
        let surveyor = Surveyor::new(&settings, &answers, &needs, Patience::Until(patience));
        let mut models = surveyor.forecast(&entries, plimsoll_runtime::this_host());
        for ((model, entry), left_out) in models.iter_mut().zip(&entries).zip(&left_out) {
            model.judge_flags(entry, settings.engine.as_deref(), left_out);
        }
        answers.end();
        let conflicts =
            plimsoll_runtime::conflicts(&entries, &models, &limits, settings.scheduler.models_max);
        let together =
            plimsoll_runtime::loaded_together(&entries, &models, &limits, settings.scheduler.models_max);
        Ok(Self { cards: limits, models, found, conflicts, together, warnings, mistakes })
    }
}
