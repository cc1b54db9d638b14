//! Tests of the choice of steps that free host memory on a machine whose GPU shares it.

use proptest::prelude::*;

use super::super::AllowanceGate;
use super::*;

const ROOT: Privileges = Privileges { root: true, force: false };
const FORCE: Privileges = Privileges { root: true, force: true };
const USER: Privileges = Privileges { root: false, force: false };

fn ground(now: u64, files: u64, droppable: u64) -> Baseline {
    Baseline {
        gate: AllowanceGate::Free,
        page: Bytes::kib(4),
        now: Bytes::mib(now),
        attainable: Bytes::mib(now + droppable + 100),
        files: Bytes::mib(files),
        idle: Bytes::ZERO,
        droppable: Bytes::mib(droppable),
        unwritten: Bytes::ZERO,
        slab: Bytes::ZERO,
        claimable: Bytes::ZERO,
        pieces: None,
    }
}

fn in_pieces(whole: u64, loose: u64, droppable: u64) -> Baseline {
    let pieces = OrderBlocks { order: 9, whole: Bytes::mib(whole), loose: Bytes::mib(loose), by_type: true };
    Baseline {
        gate: AllowanceGate::Available,
        pieces: Some(pieces),
        ..ground(whole + loose + droppable, 0, droppable)
    }
}

fn need(mib: u64) -> ReclaimGoal {
    ReclaimGoal { need: Bytes::mib(mib), order: None }
}

fn whole(mib: u64) -> ReclaimGoal {
    ReclaimGoal { need: Bytes::mib(mib), order: Some(9) }
}

fn steps(planned: &[PlannedStep]) -> Vec<ReclaimStep> {
    planned.iter().map(|planned| planned.step).collect()
}

#[test]
fn sufficient_memory_needs_no_steps() {
    let course = course(&ground(100, 50, 500), need(100), ROOT, &FutileSteps::default());
    assert_eq!(course, ReclaimPlan::nothing(StepVerdict::Enough));
}

#[test]
fn the_own_files_come_first_and_everybodys_cache_only_where_they_are_not_enough() {
    let course_for = |goal| course(&ground(100, 50, 500), goal, ROOT, &FutileSteps::default());
    assert_eq!(steps(&course_for(need(150)).steps), [ReclaimStep::AdviseFiles]);
    assert_eq!(steps(&course_for(need(151)).steps), [ReclaimStep::DropPageCache]);
    assert_eq!(course_for(need(151)).steps[0].frees, Bytes::mib(500));
}

#[test]
fn neighbours_are_asked_before_anything_that_costs_everybody_and_after_the_own_files() {
    let course_for = |mib, powers| {
        let ground = Baseline { idle: Bytes::mib(70), ..ground(100, 50, 500) };
        course(&ground, need(mib), powers, &FutileSteps::default())
    };
    assert_eq!(steps(&course_for(150, USER).steps), [ReclaimStep::AdviseFiles]);
    let requested = course_for(170, USER);
    assert_eq!(steps(&requested.steps), [ReclaimStep::AskNeighbours]);
    assert_eq!(requested.steps[0].frees, Bytes::mib(70));
    assert_eq!(steps(&course_for(220, USER).steps), [ReclaimStep::AdviseFiles, ReclaimStep::AskNeighbours]);
    let strong = [ReclaimStep::AskNeighbours, ReclaimStep::DropPageCache];
    assert_eq!(steps(&course_for(600, ROOT).steps), strong);
    assert_eq!(steps(&course_for(600, USER).steps), strong[..1]);
    assert_eq!(steps(&course_for(670, ROOT).steps), strong);
    assert!(matches!(course_for(671, ROOT).verdict, StepVerdict::Beyond { .. }));

    let early = Baseline { idle: Bytes::mib(70), gate: AllowanceGate::Available, ..ground(100, 0, 0) };
    let course = course(&early, need(170), USER, &FutileSteps::default());
    assert_eq!(steps(&course.steps), [ReclaimStep::AskNeighbours], "what is given back is available too");
}

#[test]
fn unwritten_pages_are_written_only_where_the_clean_ones_are_not_enough() {
    let ground = Baseline { unwritten: Bytes::mib(90), ..ground(100, 0, 500) };
    assert_eq!(
        steps(&course(&ground, need(600), ROOT, &FutileSteps::default()).steps),
        [ReclaimStep::DropPageCache]
    );
    assert_eq!(
        steps(&course(&ground, need(690), ROOT, &FutileSteps::default()).steps),
        [ReclaimStep::WriteAndDropPageCache]
    );
}

#[test]
fn unreachable_goal_takes_no_steps_unless_forced() {
    let ground = Baseline { slab: Bytes::mib(80), ..ground(100, 50, 500) };
    let beyond = course(&ground, need(690), ROOT, &FutileSteps::default());
    assert_eq!(beyond, ReclaimPlan::nothing(StepVerdict::Beyond { short: Bytes::mib(90) }));
    let forced = course(&ground, need(690), FORCE, &FutileSteps::default());
    assert_eq!(forced.verdict, StepVerdict::Beyond { short: Bytes::mib(10) });
    assert_eq!(steps(&forced.steps), [ReclaimStep::WriteAndDropPageCache, ReclaimStep::DropSlab]);
}

#[test]
fn an_ordinary_user_gives_back_their_own_files_and_hears_what_else_there_is() {
    let course = course(&ground(100, 50, 500), need(300), USER, &FutileSteps::default());
    assert_eq!(course.verdict, StepVerdict::Reachable);
    assert_eq!(steps(&course.steps), [ReclaimStep::AdviseFiles]);
    assert_eq!(steps(&course.withheld), [ReclaimStep::DropPageCache]);
}

#[test]
fn pieces_are_joined_before_anybodys_cache_is_dropped() {
    let ground = in_pieces(16, 600, 3000);
    assert_eq!(
        steps(&course(&ground, whole(600), ROOT, &FutileSteps::default()).steps),
        [ReclaimStep::Compact]
    );
    let dropped = course(&ground, whole(3300), ROOT, &FutileSteps::default());
    assert_eq!(steps(&dropped.steps), [ReclaimStep::DropPageCache]);
    assert_eq!(dropped.steps[0].joins, Bytes::mib(3600), "a page that is dropped joins its free neighbours");
    assert_eq!(dropped.steps[0].frees, Bytes::ZERO, "an ordinary request has these already");
}

#[test]
fn one_page_completes_one_block_and_no_more() {
    let ground = Baseline { files: Bytes::kib(8), ..in_pieces(0, 600, 3000) };
    let goal = |mib| course(&ground, whole(mib), ROOT, &FutileSteps::default());
    assert_eq!(steps(&goal(4).steps), [ReclaimStep::AdviseFiles]);
    assert_eq!(goal(4).steps[0].joins, Bytes::mib(4));
    assert_eq!(steps(&goal(5).steps), [ReclaimStep::Compact]);
}

#[test]
fn pieces_are_joined_again_once_more_is_free_and_nothing_else_is_done_twice() {
    let ground = in_pieces(16, 600, 3000);
    let mut tried = FutileSteps::default();
    tried.add(ReclaimStep::Compact);
    assert_eq!(steps(&course(&ground, whole(500), ROOT, &tried).steps), [ReclaimStep::DropPageCache]);
    tried.add(ReclaimStep::DropPageCache);
    assert_eq!(steps(&course(&ground, whole(500), ROOT, &tried).steps), [ReclaimStep::Compact]);
    assert!(tried.has(ReclaimStep::AdviseFiles) && !tried.has(ReclaimStep::WriteAndDropPageCache));
}

#[test]
fn huge_pages_are_claimed_where_compacting_brought_less_than_it_might() {
    let ground = Baseline { claimable: Bytes::mib(500), ..in_pieces(16, 600, 3000) };
    let mut tried = FutileSteps::default();
    tried.add(ReclaimStep::Compact);
    let claimed = course(&ground, whole(500), ROOT, &tried);
    assert_eq!(steps(&claimed.steps), [ReclaimStep::ClaimHugePages]);
    assert_eq!(claimed.steps[0].joins, Bytes::mib(500 - 16));
    // More than they could hold is not promised of them.
    let beyond = course(&ground, whole(501), ROOT, &tried);
    assert_eq!(steps(&beyond.steps), [ReclaimStep::DropPageCache]);
    tried.add(ReclaimStep::ClaimHugePages);
    let after = course(&ground, whole(500), ROOT, &tried);
    assert_eq!(steps(&after.steps), [ReclaimStep::DropPageCache]);
}

#[test]
fn an_order_that_cannot_be_seen_is_beyond_reach() {
    let ground = ground(100, 50, 500);
    assert!(matches!(
        course(&ground, whole(10), ROOT, &FutileSteps::default()).verdict,
        StepVerdict::Beyond { .. }
    ));
}

#[test]
fn every_step_has_a_name_of_its_own() {
    for step in ReclaimStep::ALL {
        assert_eq!(ReclaimStep::named(step.name()), Some(step));
    }
    assert_eq!(ReclaimStep::named("drop-everything"), None);
}

fn grounds() -> impl Strategy<Value = Baseline> {
    let size = || (0_u64..4096).prop_map(Bytes::mib);
    let sizes = (size(), size(), size(), size(), size(), size(), size(), size());
    let pieces = proptest::option::of((size(), size(), any::<bool>()));
    (any::<bool>(), sizes, pieces).prop_map(
        |(early, (now, more, files, idle, droppable, unwritten, slab, claimable), pieces)| Baseline {
            page: Bytes::kib(4),
            gate: if early { AllowanceGate::Free } else { AllowanceGate::Available },
            now,
            attainable: now + more,
            files,
            idle,
            droppable,
            unwritten,
            slab,
            claimable,
            pieces: pieces.map(|(whole, loose, by_type)| OrderBlocks { order: 9, whole, loose, by_type }),
        },
    )
}

fn goals() -> impl Strategy<Value = ReclaimGoal> {
    ((0_u64..12_000).prop_map(Bytes::mib), any::<bool>())
        .prop_map(|(need, whole)| ReclaimGoal { need, order: whole.then_some(9) })
}

fn powers() -> impl Strategy<Value = Privileges> {
    (any::<bool>(), any::<bool>()).prop_map(|(root, force)| Privileges { root, force })
}

fn met(ground: &Baseline, goal: ReclaimGoal) -> bool {
    Simulation::of(ground, goal).short().is_zero()
}

proptest! {
    #[test]
    fn enough_is_said_of_what_is_enough_and_of_nothing_else(ground in grounds(), goal in goals(), powers in powers()) {
        let course = course(&ground, goal, powers, &FutileSteps::default());
        let whole = ground.pieces.map_or(Bytes::ZERO, |pieces| pieces.whole);
        let enough = ground.now >= goal.need && (goal.order.is_none() || whole >= goal.need);
        prop_assert_eq!(course.verdict == StepVerdict::Enough, enough);
        prop_assert!(!enough || course.steps.is_empty() && course.withheld.is_empty());
    }

    #[test]
    fn no_step_is_taken_that_gains_nothing_or_is_beyond_the_powers(ground in grounds(), goal in goals(), powers in powers()) {
        let course = course(&ground, goal, powers, &FutileSteps::default());
        for planned in course.steps.iter().chain(&course.withheld) {
            prop_assert!(planned.gains(), "{planned:?}");
            prop_assert!(powers.force || !planned.step.needs_force());
        }
        prop_assert!(powers.root || course.steps.iter().all(|planned| !planned.step.needs_root()));
        prop_assert!(!powers.root || course.withheld.is_empty());
    }

    #[test]
    fn refused_goals_are_beyond_every_recipe_and_plans_use_the_mildest(ground in grounds(), goal in goals()) {
        let found = course(&ground, goal, ROOT, &FutileSteps::default());
        let simulated = Simulation::of(&ground, goal);
        let reaches = |recipe: &[ReclaimStep]| {
            let planned = simulated.carried_through(recipe);
            planned.iter().all(PlannedStep::gains) && simulated.after(&planned).short().is_zero()
        };
        let mild = RECIPES.iter().filter(|recipe| !recipe.contains(&ReclaimStep::DropSlab));
        let first = mild.copied().find(|recipe| reaches(recipe));
        match found.verdict {
            StepVerdict::Enough => prop_assert!(met(&ground, goal)),
            StepVerdict::Beyond { short } => {
                prop_assert!(first.is_none() && !short.is_zero());
                prop_assert!(found.steps.is_empty());
            }
            StepVerdict::Reachable => prop_assert_eq!(Some(steps(&found.steps)), first.map(<[ReclaimStep]>::to_vec)),
        }
    }

    #[test]
    fn nothing_is_promised_beyond_what_is_attainable_and_what_neighbours_hold_idle(ground in grounds(), goal in goals()) {
        let found = course(&ground, goal, ROOT, &FutileSteps::default());
        if found.verdict == StepVerdict::Reachable {
            prop_assert!(goal.need <= ground.attainable + ground.idle);
        }
    }

    /// Steps that free any part of their prediction, one at a time, planned anew after each: the sequence
    /// ends, and only steps that move pages repeat.
    #[test]
    fn one_step_at_a_time_ends(ground in grounds(), goal in goals(), shares in proptest::collection::vec(0_u64..=100, 20)) {
        let mut ground = ground;
        let (mut tried, mut taken) = (FutileSteps::default(), Vec::new());
        let mut ended = false;
        for share in shares {
            let Some(planned) = course(&ground, goal, FORCE, &tried).steps.into_iter().next() else {
                ended = true;
                break;
            };
            let moves = matches!(planned.step, ReclaimStep::Compact | ReclaimStep::ClaimHugePages);
            prop_assert!(moves || !taken.contains(&planned.step));
            taken.push(planned.step);
            tried.add(planned.step);
            ground.now += planned.frees.scaled(share, 100);
            if let Some(pieces) = &mut ground.pieces {
                pieces.whole += planned.joins.scaled(share, 100);
            }
        }
        prop_assert!(ended, "{taken:?}");
    }
}
