#!/usr/bin/env bash
# What tests need from the system: a software renderer and a virtual screen for pictures of the
# world, and a browser for the page of a report.
# Installs it when it may, says what is missing otherwise; the tests skip what cannot be drawn.
set -u
missing=()
ldconfig -p 2>/dev/null | grep -q 'libEGL\.so' || missing+=(libegl1 libgl1-mesa-dri)
command -v xvfb-run >/dev/null || missing+=(xvfb xauth)
{ command -v chromium && command -v chromedriver; } >/dev/null || missing+=(chromium chromium-driver)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null && exit 0
fi
echo "note: not installed: ${missing[*]} (Debian names); tests that draw or open a page will be skipped" >&2
exit 0
