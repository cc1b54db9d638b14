// Finds the files of a repository on a hub, in the way of Hugging Face's interface.

const HUB = "https://huggingface.co";
const PAGES = 20;

/** What a name stands for: a repository with a tag, or the address of a file; null for nothing. */
function named(text, hub) {
  const bare = text.trim();
  if (!bare) return null;
  const page = /^(?:https?:\/\/)?(?:huggingface\.co|hf\.co)\/([^/\s]+\/[^/\s:?#]+)(?:\/(?:blob|resolve)\/([^/]+)\/([^?#]+))?(:[^/\s]+)?$/.exec(bare);
  if (page && page[3]) return { address: `${hub}/${page[1]}/resolve/${page[2]}/${page[3]}` };
  if (page) return { repo: page[1], tag: page[4]?.slice(1) };
  if (/^https?:\/\//.test(bare)) return { address: bare };
  const repo = /^([\w.-]+\/[\w.-]+)(?::([\w.-]+))?$/.exec(bare);
  if (repo) return { repo: repo[1], tag: repo[2] };
  throw new Error(`\`${bare}\` names no model\nhint: write USER/REPO, USER/REPO:Q4_K_M or https://HOST/model.gguf`);
}

/** The commit of a repository, and its files with their sizes, in the order of their names. */
async function listing(hub, repo) {
  const refs = await (await got(`${hub}/api/models/${repo}/refs`)).json();
  const branches = Array.isArray(refs.branches) ? refs.branches : [];
  const branch = branches.find((one) => one.name === "main") ?? branches[0];
  const commit = branch?.targetCommit;
  if (!/^[0-9a-f]{40}$/.test(commit ?? "")) throw new Error(`${repo}: the hub names no branch of the repository`);
  const files = [];
  let next = `${hub}/api/models/${repo}/tree/${commit}?recursive=true`;
  for (let page = 0; next && page < PAGES; page += 1) {
    const answer = await got(next);
    for (const item of await answer.json()) {
      const size = item.lfs?.size ?? item.size;
      if (item.type === "file" && typeof item.path === "string") files.push([item.path, Number.isSafeInteger(size) ? size : null]);
    }
    const link = /<([^>]+)>\s*;\s*rel="?next"?/.exec(answer.headers.get("Link") ?? "");
    // A list that leads to another server is not followed.
    next = link && link[1].startsWith(`${hub}/`) ? link[1] : null;
  }
  files.sort(([a], [b]) => (a < b ? -1 : 1));
  const address = (path) => `${hub}/${repo}/resolve/${commit}/${path.split("/").map(encodeURIComponent).join("/")}`;
  return { repo, files, source: (path) => remote(address(path), files.find(([one]) => one === path)?.[1] ?? undefined) };
}
