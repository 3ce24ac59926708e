"""The token ledger of a multi-turn response: what the engine was given and what it made, turn after
turn, as one sequence to train on.

The prompt of a later turn is a new rendering of the conversation. As far as it repeats what is
held, the held tokens stay with their masks; from the first difference on (a template drops
reasoning, text was tokenized anew) the rendering wins: the next output was made from it.
"""

from collections.abc import Sequence

from slime.samples.packed import put
from slime.samples.sample import Sample


class TokenLedger:
    """Tokens, loss mask and log-probs of one trajectory.

    Attributes:
        tokens: Prompt of the first turn, then the response.
        num_prompt_tokens: Length of that first prompt.
        loss_mask: One entry per response token: 1 for tokens the model made in a context that
            still stands, 0 for those of users, tools and templates.
        log_probs: One per response token, 0.0 where the mask is 0.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.num_prompt_tokens = 0
        self.loss_mask: list[int] = []
        self.log_probs: list[float] = []

    def add_turn(
        self,
        prompt: Sequence[int],
        output: Sequence[int],
        log_probs: Sequence[float] | None = None,
        *,
        trainable: bool = True,
    ) -> int:
        """Take one call of the engine.

        Args:
            prompt: All tokens it was given.
            output: The tokens it made.
            log_probs: One per output token; needed unless `trainable` is False.
            trainable: Whether to train on the output.

        Returns:
            The number of held tokens that the prompt does not repeat, and that are dropped.

        Raises:
            ValueError: The prompt differs from the first one: it belongs to another trajectory.
                Or the log-probs are not one per token. The ledger is unchanged then.
        """
        if log_probs is None and not trainable:
            log_probs = [0.0] * len(output)
        if log_probs is None or len(log_probs) != len(output):
            given = "no" if log_probs is None else len(log_probs)
            raise ValueError(f"{given} log-probs for {len(output)} tokens")
        kept = common_prefix_length(self.tokens, prompt)
        if kept < self.num_prompt_tokens:
            raise ValueError(
                f"the prompt differs from the first one at token {kept} of "
                f"{self.num_prompt_tokens}: it continues another trajectory"
            )
        dropped = len(self.tokens) - kept
        if not self.num_prompt_tokens:
            kept = self.num_prompt_tokens = len(prompt)
            self.tokens = list(prompt)
        kept_response = kept - self.num_prompt_tokens
        new = len(prompt) - kept
        mask = int(trainable)
        self.tokens[kept:] = [*prompt[kept:], *output]
        self.loss_mask[kept_response:] = [0] * new + [mask] * len(output)
        self.log_probs[kept_response:] = [
            *[0.0] * new,
            *(value if trainable else 0.0 for value in log_probs),
        ]
        return dropped

    def write_to(self, sample: Sample) -> None:
        """Set the sample's tokens, response length, loss mask and log-probs."""
        sample.response_length = len(self.loss_mask)
        put(sample, "tokens", self.tokens)
        put(sample, "loss_mask", self.loss_mask)
        put(sample, "rollout_log_probs", self.log_probs)


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of tokens with which both begin."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))
