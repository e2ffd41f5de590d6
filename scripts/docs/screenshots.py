"""Take pictures of pages of the built site, at the widths of a desktop and a phone, light and dark.

python scripts/docs/screenshots.py OUT [PAGE.html...]    (after scripts/docs/build.sh)

Names what is wider than the screen: such a page scrolls sideways. Needs Chromium.
"""

import os
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

SITE = Path(__file__).parents[2] / "build" / "site"
PAGES = ("index", "reference", "reference/virnucpro.classify", "tutorials/metagenome-to-viruses")
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def main() -> None:
    """Take the pictures."""
    out, *given = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name in given or [f"{page}.html" for page in PAGES]:
            for width, height in ((1366, 900), (400, 860)):
                for scheme in ("light", "dark"):
                    page = browser.new_page(
                        color_scheme=scheme, viewport={"width": width, "height": height}
                    )
                    page.goto((SITE / name).as_uri())
                    page.screenshot(path=f"{out}/{Path(name).stem}-{width}-{scheme}.png")
                    wider = page.evaluate(OVERFLOW)
                    print(f"{name} {width} {scheme}" + f": {wider} pixels too wide" * bool(wider))
                    page.close()
        browser.close()


if __name__ == "__main__":
    main()
