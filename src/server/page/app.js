// The page: connects the conversation, the server, and the parts of the page.

import { addressOf, followAddress, named, setAddress } from './address.js';
import { Chat } from './chat.js';
import { Composer } from './composer.js';
import { Connection } from './connection.js';
import { announce } from './dom.js';
import { Drafts, withdrawn } from './drafts.js';
import { refusal } from './fit.js';
import { Gauge } from './gauge.js';
import { shortcuts } from './keys.js';
import { Messages } from './messages.js';
import { Rope, showContext, showMemory, showSpeed } from './panel.js';
import { Picker } from './picker.js';
import { Pull } from './pull.js';
import { applyTheme, nextTheme, showSampling } from './settings.js';
import { askDeletion, askTitle, exportConversation, importConversation, showList } from './sidebar.js';
import * as store from './store.js';
import { path, used } from './tree.js';

const $ = (selector) => document.querySelector(selector);

/** What is said of an address whose conversation the browser does not have. */
const ELSEWHERE = 'This browser does not have the conversation of this address: it was deleted, or is kept in another browser.';

applyTheme();

const drafts = new Drafts();
const rope = new Rope($('#rope'));
const gauge = new Gauge($('#gauge'));

const picker = new Picker($('#models'), {
    chosen: (name) => {
        chat.setModel(name);
        connection.look();
    },
    loaded: () => pull.show(),
});

const pull = new Pull({
    open: $('#pull-open'),
    dialog: $('#pull'),
    first: $('#first'),
    picker,
    pulled: async (named, isWatched) => {
        const hadNone = picker.chosen === null;
        await connection.look();
        const model = named(picker.names);
        // A conversation that goes on meanwhile keeps its model.
        if (model && (isWatched || hadNone)) picker.choose(model);
        if (isWatched) composer.field.focus();
    },
    failed: (sentence) => composer.say(sentence),
});

const connection = new Connection({
    status: $('#model'),
    dialog: $('#key'),
    picker,
    changed: (properties) => {
        if (properties) {
            showSampling($('#sampling'), properties.default_generation_settings.params);
            showMemory($('#memory'), properties);
            rope.load();
        }
        // Notices tell of the server as it was: another may have come.
        composer.say('');
        show();
    },
});

const chat = new Chat({ show, progress, sent, ended, say: (sentence) => composer.say(sentence) }, connection);

const messages = new Messages($('#messages'), $('#scroller'), {
    choose: (node, label) => {
        chat.choose(node);
        messages.focus(node, label);
    },
    edit: (node, content) => chat.edit(node, content),
    refusal: async (node, content) => {
        const busy = () => (chat.writing() ? 'An answer is being written: stop it or wait, then send the new version.' : null);
        return busy() ?? (await refusal(chat.asked({ ...node, content }, node), connection.properties)) ?? busy();
    },
    regenerate: (node, instead) => chat.regenerate(node, instead),
    resume: (node) => chat.resume(node),
    limit: (node) => chat.limit(node),
});

const composer = new Composer($('#composer'), {
    send: (message) => chat.send(message),
    refusal: (message) => refusal(chat.asked(message), connection.properties),
    stop: () => chat.stop(),
    changed: () => {
        if (written) drafts.set(written, composer.draft);
        showUse();
    },
    editLast: () => [...document.querySelectorAll('[aria-label="Edit the message"]')].at(-1)?.click(),
});

/** The conversation that the field's message is for. */
let written = null;

/** Shows the conversation. */
function show() {
    const { current, conversations } = chat;
    const kept = conversations.includes(current);
    setAddress(kept ? current : null, written !== null && current !== written);
    if (current !== written) {
        written = current;
        if (picker.open(current)) connection.look();
        composer.show(drafts.of(current));
    }
    const own = chat.writing();
    const elsewhere = chat.writtenElsewhere();
    messages.show(current, [own, elsewhere], own === null);
    composer.setBusy(own !== null || elsewhere !== null);
    showConversations();
    $('#title').textContent = kept ? current.title : 'New conversation';
    document.title = kept ? `${current.title} – rope-cpu` : 'rope-cpu';
    $('#actions').hidden = !kept;
    const system = $('#system');
    if (system !== document.activeElement) system.value = current.system;
    $('#system-default').disabled = chat.systemIsDefault;
    showUse();
}

/** Shows the list of conversations that have what is searched for. Returns how many. */
function showConversations() {
    return showList($('#conversations'), chat.conversations, $('#search').value, {
        current: chat.current,
        running: (conversation) => chat.writing(conversation) !== null || chat.writtenElsewhere(conversation) !== null,
        open: (conversation) => {
            chat.open(conversation);
            messages.toEnd();
            closeSidebar();
            composer.field.focus();
        },
        remove: async (conversation) => {
            const rows = [...$('#conversations').querySelectorAll('.conversation')];
            const place = rows.findIndex((row) => row.hash === addressOf(conversation));
            if (!(await remove(conversation))) return;
            // The next one may be deleted, too.
            const buttons = [...$('#conversations').querySelectorAll('.icon-button')];
            (buttons[Math.min(place, buttons.length - 1)] ?? $('#new')).focus();
        },
    });
}

/** Shows what is used of the context, and the speed. */
function showUse(reading = null) {
    const { properties } = connection;
    // A model that is not open has no context yet.
    $('#gauge').hidden = !properties;
    if (!properties) return;
    const nodes = path(chat.current);
    const use = {
        used: reading ? reading.processed : used(nodes),
        pending: reading ? reading.total - reading.processed : composer.tokens,
        reading: reading !== null,
        context: properties.default_generation_settings.n_ctx,
        trained: properties.n_ctx_train,
    };
    gauge.show(use);
    showContext($('#context'), use);
    showSpeed($('#speed'), nodes, use.context);
}

let drawn = 0;

/** Shows the progress of an answer; the gauge and the speed some times a second. */
function progress(node, reading) {
    messages.progress(node, reading);
    if (performance.now() - drawn < 250) return;
    drawn = performance.now();
    showUse(reading);
}

function sent() {
    messages.toEnd();
    // The button that was pressed is gone.
    if (document.activeElement === document.body) composer.field.focus();
}

/** Called when an answer has ended. If it was complete, the first message that waits for it is sent. */
async function ended(conversation, node, fault) {
    next(conversation, !fault && !node.answer.stopped && !node.answer.fault);
    if (fault?.kind === 'key') await connection.askKey();
    await connection.look();
    showMemory($('#memory'), connection.properties);
    rope.follow(Math.min(used(path(chat.current)), connection.properties?.default_generation_settings.n_ctx ?? 0));
}

/** Sends the first message that waits, or puts all of them back into the draft. */
async function next(conversation, complete) {
    const [message] = drafts.of(conversation).waiting;
    if (!message || !chat.conversations.includes(conversation)) return;
    const notice = complete ? await refusal(chat.asked(message, null, conversation), connection.properties) : null;
    if (chat.writing(conversation) || chat.writtenElsewhere(conversation)) return;
    const draft = drafts.of(conversation);
    const sends = complete && !notice;
    drafts.set(conversation, sends ? { ...draft, waiting: draft.waiting.filter((other) => other !== message) } : withdrawn(draft));
    if (conversation === written) {
        composer.show(drafts.of(conversation));
        composer.say(notice);
    }
    if (sends) chat.send(message, conversation);
}

// ---- Panels, dialogs, themes.

const narrow = matchMedia('(max-width: 56rem)');
const middle = matchMedia('(max-width: 76rem)');

function toggle(name, open = document.body.dataset[name] !== 'open') {
    const inside = $(`#${name}`).contains(document.activeElement);
    document.body.dataset[name] = open ? 'open' : 'closed';
    $(`#toggle-${name}`).setAttribute('aria-expanded', open);
    if (!(name === 'sidebar' ? narrow : middle).matches) store.set(name, open ? 'open' : 'closed');
    const covered = (name) => (name === 'sidebar' ? narrow : middle).matches && document.body.dataset[name] === 'open';
    $('main').inert = covered('sidebar') || covered('panel');
    if (!open && inside) $(`#toggle-${name}`).focus();
    if (open && narrow.matches) $(name === 'sidebar' ? '#new' : '#panel .close').focus();
}

function closeSidebar() {
    if (narrow.matches) toggle('sidebar', false);
}

function showPanels() {
    toggle('sidebar', !narrow.matches && store.setting('sidebar', 'open') === 'open');
    toggle('panel', !middle.matches && store.setting('panel', 'open') === 'open');
}

narrow.addEventListener('change', showPanels);
middle.addEventListener('change', showPanels);
$('#toggle-sidebar').addEventListener('click', () => toggle('sidebar'));
$('#toggle-panel').addEventListener('click', () => toggle('panel'));
$('#panel .close').addEventListener('click', () => {
    toggle('panel', false);
    $('#toggle-panel').focus();
});
$('#shade').addEventListener('click', () => {
    toggle('sidebar', false);
    toggle('panel', false);
});

function begin() {
    chat.begin();
    closeSidebar();
    composer.field.focus();
}

function showTheme(name) {
    const button = $('#theme');
    button.setAttribute('aria-label', `Theme: ${name}`);
    button.title = `Theme: ${name}`;
}

$('#new').addEventListener('click', begin);
$('#theme').addEventListener('click', () => showTheme(nextTheme()));
showTheme(store.setting('theme', 'system'));
$('#system').addEventListener('input', (event) => {
    chat.setSystem(event.target.value);
    $('#system-default').disabled = chat.systemIsDefault;
});
$('#system-default').addEventListener('click', () => {
    chat.makeSystemDefault();
    $('#system-default').disabled = true;
    $('#system').focus();
    announce('Other new conversations begin with this system prompt, too.');
});
$('#search').addEventListener('input', () => {
    const count = showConversations();
    announce(count === 1 ? '1 conversation' : `${count} conversations`);
});
$('#search').addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || event.target.value === '') return;
    event.stopPropagation();
    event.target.value = '';
    showConversations();
});
$('#rename').addEventListener('click', async () => {
    const title = await askTitle($('#title-dialog'), chat.current.title);
    if (title) chat.rename(title);
});
$('#export').addEventListener('beforetoggle', () => {
    const { right, bottom } = $('[popovertarget="export"]').getBoundingClientRect();
    $('#export').style.setProperty('--right', `${right}px`);
    $('#export').style.setProperty('--bottom', `${bottom}px`);
});
$('#export-markdown').addEventListener('click', () => exportConversation(chat.current, 'md'));
$('#export-json').addEventListener('click', () => exportConversation(chat.current, 'json'));
$('#import').addEventListener('click', () => $('#import-file').click());
$('#import-file').addEventListener('change', async ({ target }) => {
    const [file] = target.files;
    closeSidebar();
    try {
        if (file) chat.add(await importConversation(file));
        composer.say('');
        messages.toEnd();
    } catch (error) {
        composer.say(error.message);
    }
    // The same file may be chosen again.
    target.value = '';
});
$('#delete').addEventListener('click', async () => {
    if (await remove(chat.current)) composer.field.focus();
});

/** Deletes a conversation if the user confirms it. Returns whether it was. */
async function remove(conversation) {
    if (!(await askDeletion($('#delete-dialog'), conversation.title))) return false;
    await chat.remove(conversation);
    drafts.remove(conversation);
    return true;
}

for (const button of document.querySelectorAll('dialog .cancel')) {
    button.addEventListener('click', () => button.closest('dialog').close(''));
}

// ---- Files may be dropped anywhere.

let inside = 0;
const carriesFiles = (event) => event.dataTransfer?.types.includes('Files');
addEventListener('dragenter', (event) => carriesFiles(event) && document.body.classList.toggle('drop', ++inside > 0));
addEventListener('dragleave', (event) => carriesFiles(event) && document.body.classList.toggle('drop', --inside > 0));
addEventListener('dragover', (event) => carriesFiles(event) && event.preventDefault());
addEventListener('drop', (event) => {
    inside = 0;
    document.body.classList.remove('drop');
    if (!carriesFiles(event)) return;
    event.preventDefault();
    composer.attach([...event.dataTransfer.files]);
});

shortcuts({
    new: begin,
    sidebar: () => toggle('sidebar'),
    panel: () => toggle('panel'),
    search: () => {
        toggle('sidebar', true);
        $('#search').select();
    },
    regenerate: () => [...document.querySelectorAll('[aria-label="Regenerate the answer"]')].at(-1)?.click(),
    message: () => composer.field.focus(),
    help: () => $('#help').showModal(),
    escape: () => {
        if (narrow.matches && document.body.dataset.sidebar === 'open') toggle('sidebar', false);
        else if (middle.matches && document.body.dataset.panel === 'open') toggle('panel', false);
        else {
            chat.stop();
            composer.field.focus();
        }
    },
});
$('#show-help').addEventListener('click', () => $('#help').showModal());

// ---- Begin.

showPanels();
const keeps = await store.open();
await drafts.open();
const isHere = await chat.load(named());
messages.toEnd();
followAddress((id) => {
    const isHere = chat.openNamed(id);
    messages.toEnd();
    if (!isHere) composer.say(ELSEWHERE);
});
composer.field.focus();
await connection.look();
if (!keeps) composer.say('This browser keeps no data for the page: conversations are lost when it is left.');
else if (!isHere) composer.say(ELSEWHERE);
