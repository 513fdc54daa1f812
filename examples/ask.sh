#!/usr/bin/env bash
# Ask before a deployment, from any shell script. Needs a desk that runs: handraise serve
set -euo pipefail

version=${1:-2.0}

status=0
answer=$(handraise ask "Deploy version $version?" now tonight never --recommend tonight --no-custom \
  --id "deploy-$version" --header Deployment) || status=$?

case $status in
  0) echo "deploying version $version: $answer" ;;
  4) echo "somebody would rather not" ;;
  *) echo "no answer (exit code $status)" && exit "$status" ;;
esac

# A permission: nothing is run unless somebody allows it.
handraise ask "Remove the old release" --command "rm -rf release-old" && rm -rf release-old
