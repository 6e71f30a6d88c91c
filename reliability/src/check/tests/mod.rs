//! For every rule, a small history that violates it, and a near miss.

mod effects;
mod holding;
mod linear;
mod order;
mod survival;
