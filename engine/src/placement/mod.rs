//! Where a gang goes: filters and scores, pools, one cluster or several.

pub(crate) mod across;
mod candidate;
mod choices;
pub(crate) mod eligible;
pub(crate) mod empty;
pub(crate) mod lookup;
pub(crate) mod mixed;
pub(crate) mod no_plan;
pub(crate) mod plan;
pub(crate) mod put;
mod put_now;
pub(crate) mod request;
pub(crate) mod score;
pub(crate) mod shortage;
pub(crate) mod split;
pub(crate) mod spread;
pub(crate) mod unmatched;
pub(crate) mod ways;
pub(crate) mod weighted;
