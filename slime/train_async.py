"""The entry point that overlaps: ``./bazelw run //slime:train_async -- --config=FILE``.

As `slime.train`, but the next rollout is generated while one trains.
"""

import functools
import sys

from slime import train

main = functools.partial(train.main, overlapped=True)

if __name__ == "__main__":
    sys.exit(main())
