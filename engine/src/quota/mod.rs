//! The quota store: the tree of queues, what each may have and has charged, and who goes first among siblings.

pub(crate) mod accounts;
pub(crate) mod check;
pub(crate) mod decay;
pub(crate) mod idle;
pub(crate) mod limits;
pub(crate) mod measure;
pub(crate) mod order;
pub(crate) mod passed;
pub(crate) mod queues;
pub(crate) mod scopes;
pub(crate) mod sibling_order;
pub(crate) mod tree;
pub(crate) mod validity;
