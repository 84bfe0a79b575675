//! The effect of dropping a permit.

use crate::protocol::ReleaseMode;
use crate::semaphore::settings::Settings;

#[derive(Clone, Copy)]
pub(super) enum OnDrop {
    Release(ReleaseMode),
    LetExpire,
}

impl OnDrop {
    pub(super) const RETURN: Self = Self::Release(ReleaseMode::Return);

    pub(super) fn of(settings: &Settings) -> Self {
        if settings.let_expire_on_drop { Self::LetExpire } else { Self::RETURN }
    }

    /// Returns the effect of a drop, which depends on whether the permit was lost. A lost permit is
    /// released instead of forgotten, because forgetting it must not change the limit. For a lost
    /// permit, `LetExpire` stays unchanged, because the permit counts as a start.
    pub(super) fn unless_lost(self, was_lost: bool) -> Self {
        match self {
            Self::Release(_) if was_lost => Self::RETURN,
            how => how,
        }
    }
}
