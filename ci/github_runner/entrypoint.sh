#!/bin/bash
# Register this container as a runner of GITHUB_REPOSITORY, take jobs, and sign off when it is stopped.
set -euo pipefail

api="https://api.github.com/repos/$GITHUB_REPOSITORY/actions/runners"

# token KIND: a short-lived token to register ("registration") or to sign off ("remove"). The long-lived one goes to curl
# by standard input: command lines are for all to read.
token() {
    printf 'header = "Authorization: Bearer %s"\n' "$GITHUB_TOKEN" |
        curl --silent --show-error --fail --retry 5 --request POST --config - "$api/$1-token" |
        jq --raw-output --exit-status .token
}

sign_off() {
    trap - EXIT
    ./config.sh remove --token "$(token remove)"
}

cd /home/runner
name="$(hostname)"
work="$RUNNER_FOLDER/$name"
mkdir -p "$work"
./config.sh --unattended --replace --disableupdate --url "https://github.com/$GITHUB_REPOSITORY" \
    --token "$(token registration)" --name "gpu-$name" --labels gpu --work "$work"
trap sign_off EXIT

# Jobs get neither the token nor a way to ask for it.
env --unset=GITHUB_TOKEN ./run.sh &
runner=$!
trap 'kill -TERM "$runner"; wait "$runner"; exit 0' TERM INT
wait "$runner"
