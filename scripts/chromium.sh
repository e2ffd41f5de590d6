# Sourced by .ci/run: installs Chromium where it is missing, with root and apt. Without these, the tests
# marked `browser` are skipped and say why.

install_chromium() {
  if command -v chromium >/dev/null || [ -n "${CHROMIUM:-}" ]; then
    return
  fi
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing Chromium" >&2
    apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends \
      chromium fonts-dejavu-core >/dev/null || echo "Chromium could not be installed" >&2
  fi
}
